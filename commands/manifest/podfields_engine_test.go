package manifest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/manifest"
)

// TestPodFieldsOnEngine: a restart rule restarts a container by its exit code, with a variable from a file. The policy
// Strict is refused for containerd 1, which would ignore it.
func TestPodFieldsOnEngine(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "pod directories need root")
	}
	eachRuntime(t, func(t *testing.T, endpoint, image string) {
		dir := t.TempDir()
		in, _, connector := invocationOf(engineProcess(t, endpoint, filepath.Join(dir, "root")))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		conn, err := connector.Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := managerOn(t, in.PodDirs(), conn.ClientConn(), conn)
		up := func(text string) error {
			t.Helper()
			path := filepath.Join(dir, "pod.yaml")
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "IMAGE", image)), 0o600); err != nil {
				t.Fatal(err)
			}
			set, err := readManifests(in, manifest.Options{}, []string{path})
			if err != nil {
				t.Fatal(err)
			}
			p := set.Pods[0].Pod
			_, _, upErr := r.Up(ctx, p, set, nil, kuberuntime.Wait{Until: kuberuntime.UntilDone})
			status, err := r.GetPodStatus(ctx, string(p.UID), p.Name, p.Namespace)
			if err != nil {
				t.Fatal(err)
			}
			if c := status.Container("a"); upErr == nil && c != nil && c.RestartCount != 1 {
				t.Errorf("got %d restarts, want 1", c.RestartCount)
			}
			if err := r.Remove(ctx, p, status, new(int64)); err != nil {
				t.Error(err)
			}
			return upErr
		}
		if err := up(`
apiVersion: v1
kind: Pod
metadata: {name: fields, namespace: fields}
spec:
  restartPolicy: Never
  initContainers:
  - {name: i, image: IMAGE, imagePullPolicy: IfNotPresent, command: [sh, -c, "echo \"TOKEN='a b'\" >/v/env"], volumeMounts: [{name: v, mountPath: /v}]}
  containers:
  - name: a
    image: IMAGE
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "[ \"$T\" = 'a b' ] || exit 9; [ -e /v/ran ] && exit 0; touch /v/ran; exit 42"]
    env: [{name: T, valueFrom: {fileKeyRef: {volumeName: v, path: env, key: TOKEN}}}]
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
`); err != nil {
			t.Error(err)
		}
		err = up(`
apiVersion: v1
kind: Pod
metadata: {name: strict, namespace: fields}
spec:
  restartPolicy: Never
  securityContext: {supplementalGroupsPolicy: Strict}
  containers: [{name: strict, image: IMAGE, imagePullPolicy: IfNotPresent, command: ["true"]}]
`)
		version, _ := r.Version(ctx)
		ignores := r.Type() == "containerd" && strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.")
		const want = "spec.securityContext.supplementalGroupsPolicy: Forbidden: containerd does not say that it has the policy Strict"
		if ignores && (err == nil || !strings.Contains(err.Error(), want)) || !ignores && err != nil {
			t.Errorf("%s %s: got %v", r.Type(), version, err)
		}
	})
}
