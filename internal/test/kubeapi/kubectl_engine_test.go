package kubeapi_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/internal/test/kubeapi"
)

// TestKubectl creates a pod on containerd and one on Docker with kubectl.
func TestKubectl(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("kubectl")
	if err != nil {
		test.Missing(t, "no kubectl")
	}
	containerd := enginetest.Containerd(t)
	enginetest.Require(t)
	image := os.Getenv("CRISHIM_TEST_IMAGE")
	if image == "" {
		image = "busybox:crishim"
	}
	docker := "docker://"
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		docker += strings.TrimPrefix(host, "unix://")
	}
	dir := t.TempDir()
	s := kubeapi.Start(t, kubeapi.Options{Nodes: []kubeapi.Node{
		{Name: "containerd", Endpoint: containerd, HostPaths: map[string]string{"/from/the/node": dir}}, {Name: "docker", Endpoint: docker, HostPaths: map[string]string{"/from": "/nowhere", "/from/the": dir}},
	}})
	kubectl := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--kubeconfig", s.Kubeconfig}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	if got := kubectl("", "get", "nodes"); !strings.Contains(got, "containerd://") || strings.Count(got, "Ready") != 2 {
		t.Error(got)
	}
	if err := os.MkdirAll(filepath.Join(dir, "node"), 0o700); err != nil {
		t.Fatal(err)
	}
	manifest := ""
	for _, node := range []string{"containerd", "docker"} {
		manifest += strings.NewReplacer("NODE", node, "IMAGE", image).Replace(`---
apiVersion: v1
kind: Pod
metadata: {name: on-NODE}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 1
  volumes: [{name: host, hostPath: {path: /from/the/node}}]
  containers:
  - {name: main, image: IMAGE, command: [sh, -c, "echo NODE > /host/NODE; exec sleep 1000"], volumeMounts: [{name: host, mountPath: /host}]}
`)
	}
	kubectl(manifest, "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Ready", "pod/on-containerd", "pod/on-docker", "--timeout=2m")
	for node, file := range map[string]string{"containerd": filepath.Join(dir, "containerd"), "docker": filepath.Join(dir, "node", "docker")} {
		if got, err := os.ReadFile(file); err != nil || string(got) != node+"\n" {
			t.Errorf("%s: %v", got, err)
		}
		if got := kubectl("typed\n", "exec", "-i", "on-"+node, "--", "cat"); got != "typed\n" {
			t.Errorf("exec on %s: %q", node, got)
		}
	}
	kubectl("", "delete", "pods", "--all", "--wait")
	if got := s.Pods(); len(got) > 0 {
		t.Errorf("%d pods are left", len(got))
	}
}
