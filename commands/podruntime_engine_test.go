package commands

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/testneeds"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/shim/enginetest"
)

// beforeCreate calls a function before each container is made, with what is asked for.
type beforeCreate struct {
	grpc.ClientConnInterface
	do func(*runtimeapi.CreateContainerRequest)
}

func (b beforeCreate) Invoke(ctx context.Context, method string, req, resp any, o ...grpc.CallOption) error {
	if r, ok := req.(*runtimeapi.CreateContainerRequest); ok {
		b.do(r)
	}
	return b.ClientConnInterface.Invoke(ctx, method, req, resp, o...)
}

// eachRuntime runs a test on the shim with the real engine, and on containerd.
func eachRuntime(t *testing.T, test func(t *testing.T, endpoint, image string)) {
	t.Helper()
	required := os.Getenv("CRISHIM_REQUIRE_ENGINE") == "1"
	t.Run("docker", func(t *testing.T) {
		test(t, "docker://"+strings.TrimPrefix(enginetest.Require(t).Endpoint().Host, "unix://"), testImage())
	})
	t.Run("containerd", func(t *testing.T) {
		endpoint := os.Getenv("CRISHIM_TEST_CONTAINERD")
		if endpoint == "" && !required {
			testneeds.Missing(t, "CRISHIM_TEST_CONTAINERD names no containerd")
		}
		test(t, endpoint, testImage())
	})
}

func testImage() string {
	if image := os.Getenv("CRISHIM_TEST_IMAGE"); image != "" {
		return image
	}
	return "busybox:crishim"
}

func engineEnv(t *testing.T, endpoint, root string) *Env {
	t.Helper()
	lookup := func(name string) (string, bool) {
		value, ok := map[string]string{"CONTAINER_RUNTIME_ENDPOINT": endpoint, "CRISHIM_ROOT": root}[name]
		return value, ok
	}
	return &Env{In: strings.NewReader(""), Out: io.Discard, Err: t.Output(), LookupEnv: lookup, Now: time.Now, StartShim: startShim(lookup)}
}

// managerOn is a pod runtime on a connection in which the calls of the runtime go through calls.
func managerOn(t *testing.T, env *Env, calls grpc.ClientConnInterface, conn *client.Conn) *kuberuntime.Manager {
	t.Helper()
	host, err := kuberuntime.ReadHost()
	if err != nil {
		t.Fatal(err)
	}
	m, err := kuberuntime.New(t.Context(), kuberuntime.Options{
		Runtime: calls, Image: conn.ImageClientConn(), Endpoint: conn.RuntimeEndpoint, Dirs: kuberuntime.DefaultDirs(env.LookupEnv), Host: host,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestSubPathSwappedMeanwhile has a container that swaps a folder of a shared volume for a
// link to the host's root folder, just before the container that mounts the folder is
// made. It must get the folder, and no way to the host.
func TestSubPathSwappedMeanwhile(t *testing.T) {
	if os.Geteuid() != 0 {
		testneeds.Missing(t, "a bind mount needs root")
	}
	eachRuntime(t, func(t *testing.T, endpoint, image string) {
		dir := t.TempDir()
		for name, text := range map[string]string{"pod.yaml": strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: swap, namespace: swap}
spec:
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - {name: attacker, image: IMAGE, imagePullPolicy: IfNotPresent, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}]}
  - {name: victim, image: IMAGE, imagePullPolicy: IfNotPresent, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /d, subPath: a/d}]}
`, "IMAGE", image), "host": "of the host"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		root := filepath.Join(dir, "root")
		env := engineEnv(t, endpoint, root)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		conn, err := env.connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var r *kuberuntime.Manager
		attacker := ""
		exec := func(id, script string) string {
			t.Helper()
			out, err := r.RunInContainer(ctx, id, []string{"sh", "-c", script}, time.Minute)
			if err != nil {
				t.Errorf("%s: %v: %s", script, err, out)
			}
			return strings.TrimSpace(string(out))
		}
		r = managerOn(t, env, beforeCreate{conn.ClientConn(), func(req *runtimeapi.CreateContainerRequest) {
			if req.GetConfig().GetMetadata().GetName() != "victim" {
				return
			}
			list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: req.GetPodSandboxId()}})
			if err != nil || len(list.GetContainers()) != 1 {
				t.Errorf("got %v, %v, want the attacker", list, err)
				return
			}
			attacker = list.GetContainers()[0].GetId()
			exec(attacker, "echo of the volume >/v/a/d/mine; mv /v/a/d /v/real; ln -s "+dir+" /v/a/d")
		}}, conn)
		set, err := readManifests(env, []string{filepath.Join(dir, "pod.yaml")})
		if err != nil {
			t.Fatal(err)
		}
		p := set.Pods[0].Pod
		_, upErr := r.Up(ctx, p, set, kuberuntime.Wait{})
		status, err := r.GetPodStatus(ctx, string(p.UID), p.Name, p.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		if upErr != nil {
			t.Error(upErr)
		} else {
			victim := status.Container("victim").ID
			if got := exec(victim, "ls /d"); got != "mine" {
				t.Errorf("the container finds %q in its sub path, want what is in the volume", got)
			}
			exec(victim, "echo more >/d/more")
			if got := exec(attacker, "cat /v/real/more"); got != "more" {
				t.Errorf("got %q: the sub path is another folder than the volume's", got)
			}
		}
		if err := r.Remove(ctx, p, status, new(int64)); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "host")); err != nil || string(text) != "of the host" {
			t.Errorf("the host's file: got %q, %v", text, err)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(mounts), root) {
			t.Errorf("below %s something is still mounted, or cannot be seen: %v", root, err)
		}
	})
}
