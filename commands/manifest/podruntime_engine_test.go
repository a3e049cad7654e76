package manifest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// beforeCreate calls do with the request before each container is created.
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
func eachRuntime(t *testing.T, run func(t *testing.T, endpoint, image string)) {
	t.Helper()
	t.Run("docker", func(t *testing.T) {
		run(t, "docker://"+strings.TrimPrefix(enginetest.Require(t).Endpoint().Host, "unix://"), testImage())
	})
	t.Run("containerd", func(t *testing.T) {
		run(t, enginetest.Containerd(t), testImage())
	})
}

func testImage() string {
	if image := os.Getenv("CRISHIM_TEST_IMAGE"); image != "" {
		return image
	}
	return "busybox:crishim"
}

func engineProcess(t *testing.T, endpoint, root string) *cli.Process {
	t.Helper()
	lookup := func(name string) (string, bool) {
		value, ok := map[string]string{"CONTAINER_RUNTIME_ENDPOINT": endpoint, "CRISHIM_ROOT": root}[name]
		return value, ok
	}
	return &cli.Process{In: strings.NewReader(""), Out: io.Discard, Err: t.Output(), LookupEnv: lookup, Now: time.Now, StartShim: cli.SystemProcess("").StartShim}
}

func invocationOf(p *cli.Process) (in *cli.Invocation, printer *cli.Printer, connector *cli.Connector) {
	in = cli.NewInvocation(p, false)
	return in, in.Printer, cli.NewConnector(in)
}

// managerOn returns a pod runtime on a connection. The calls of the runtime go through calls.
func managerOn(t *testing.T, dirs pod.Dirs, calls grpc.ClientConnInterface, conn *client.Conn) *kuberuntime.Manager {
	t.Helper()
	host, err := criconfig.ReadHost()
	if err != nil {
		t.Fatal(err)
	}
	m, err := kuberuntime.New(t.Context(), kuberuntime.Options{
		Runtime: calls, Image: conn.ImageClientConn(), Endpoint: conn.RuntimeEndpoint, Dirs: dirs, Host: host,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestSubPathSwappedMeanwhile has a container that swaps a directory of a shared volume for a link to the host's root
// directory, just before the container that mounts the directory is created. The mount must be the directory, and
// never the host's root.
func TestSubPathSwappedMeanwhile(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "a bind mount needs root")
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
		in, _, connector := invocationOf(engineProcess(t, endpoint, root))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		conn, err := connector.Connect(ctx)
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
		r = managerOn(t, in.PodDirs(), beforeCreate{conn.ClientConn(), func(req *runtimeapi.CreateContainerRequest) {
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
		set, err := readManifests(in, manifest.Options{}, []string{filepath.Join(dir, "pod.yaml")})
		if err != nil {
			t.Fatal(err)
		}
		p := set.Pods[0].Pod
		_, _, upErr := r.Up(ctx, p, set, nil, kuberuntime.Wait{})
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
				t.Errorf("got %q: the sub path is another directory than the volume's", got)
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

// pushImage puts an image into a registry on 127.0.0.1, which engines take without TLS, and returns its name.
func pushImage(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	image, err := random.Image(1<<10, 1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(server.Listener.Addr().String() + "/app:1")
	if err == nil {
		err = remote.Write(ref, image, remote.WithContext(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestKubeGenericRuntimeOnEngine drives a pod through the kubelet's runtime interfaces: sync loop, sessions, images
// and garbage collection.
func TestKubeGenericRuntimeOnEngine(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "pod directories need root")
	}
	eachRuntime(t, func(t *testing.T, endpoint, image string) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		dir := t.TempDir()
		in, _, connector := invocationOf(engineProcess(t, endpoint, filepath.Join(dir, "root")))
		conn, err := connector.Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		m := managerOn(t, in.PodDirs(), conn.ClientConn(), conn)
		var r kuberuntime.KubeGenericRuntime = m
		must := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}

		version, err := r.Version(ctx)
		must("version", err)
		api, err := r.APIVersion(ctx)
		must("API version", err)
		runtimeStatus, err := r.Status(ctx)
		must("status", err)
		if r.Type() == "" || version == "" || api != "v1" || !runtimeStatus.GetConditions()[0].GetStatus() {
			t.Errorf("got %q, %q, %q, %v", r.Type(), version, api, runtimeStatus)
		}
		must("pod CIDR", r.UpdatePodCIDR(ctx, "10.88.0.0/16"))

		file := filepath.Join(dir, "pod.yaml")
		must("manifest", os.WriteFile(file, []byte(strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: kubelet, namespace: generic}
spec:
  restartPolicy: Never
  containers:
  - {name: job, image: IMAGE, imagePullPolicy: IfNotPresent, command: [sh, -c, "echo out; echo err >&2"]}
  - {name: cat, image: IMAGE, imagePullPolicy: IfNotPresent, stdin: true, command: [cat]}
  - {name: web, image: IMAGE, imagePullPolicy: IfNotPresent, command: [sh, -c, "mkdir /www; echo page >/www/index.html; exec httpd -f -p 127.0.0.1:8000 -h /www"]}
`, "IMAGE", image)), 0o600))
		set, err := readManifests(in, manifest.Options{}, []string{file})
		must("manifest", err)
		p := set.Pods[0].Pod
		uid := string(p.UID)
		look := func() *pod.Status {
			t.Helper()
			status, err := r.GetPodStatus(ctx, uid, p.Name, p.Namespace)
			must("pod status", err)
			return status
		}
		for { // each look and its step
			result := r.SyncPod(ctx, p, set, look())
			must("sync", result.Err)
			if result.Actions.Nothing() {
				break
			}
		}
		status := look()
		job, cat, web := status.Container("job").ID, status.Container("cat").ID, status.Container("web").ID
		pods, err := r.GetPods(ctx, false)
		must("pods", err)
		if !slices.ContainsFunc(pods, func(p *pod.Pod) bool { return p.UID == uid && len(p.Containers) == 3 }) {
			t.Errorf("got %v, want the pod among those that run", pods)
		}

		// Following a log ends with its container.
		var stdout, stderr bytes.Buffer
		must("logs", r.GetContainerLogs(ctx, job, logfile.Options{Tail: -1, Follow: true}, &stdout, &stderr))
		if stdout.String() != "out\n" || stderr.String() != "err\n" {
			t.Errorf("logs: got %q and %q", &stdout, &stderr)
		}

		out, err := r.RunInContainer(ctx, cat, []string{"sh", "-c", "echo said; exit 3"}, time.Minute)
		var exit *kuberuntime.CommandError
		if string(out) != "said\n" || !errors.As(err, &exit) || exit.Code != 3 {
			t.Errorf("run: got %q, %v", out, err)
		}
		url, err := r.GetExec(ctx, cat, []string{"sh", "-c", "cat; exit 4"}, true, true, false, false)
		must("exec", err)
		var session bytes.Buffer
		var ended *stream.ExitError
		err = stream.Run(ctx, url, stream.Streams{In: strings.NewReader("typed"), Out: &session}, stream.Options{})
		if session.String() != "typed" || !errors.As(err, &ended) || ended.Code != 4 {
			t.Errorf("exec: got %q, %v", &session, err)
		}
		url, err = r.GetAttach(ctx, cat, true, true, false, false)
		must("attach", err)
		attached, detach := context.WithCancel(ctx)
		typed, echoed := io.Pipe()
		heard := writerFunc(func(b []byte) (int, error) {
			if bytes.Contains(b, []byte("hello")) {
				detach()
			}
			return len(b), nil
		})
		go func() { _, _ = io.WriteString(echoed, "hello\n") }()
		if err := stream.Run(attached, url, stream.Streams{In: typed, Out: heard}, stream.Options{}); attached.Err() == nil {
			t.Errorf("attach: ended with %v before it had an echo", err)
		}
		detach()
		forwarding, stop := context.WithCancel(ctx)
		defer stop()
		page := ""
		err = stream.Forward(forwarding, func(ctx context.Context) (string, error) {
			return r.GetPortForward(ctx, status.Sandbox().GetId(), []int32{8000})
		}, []stream.Port{{Remote: 8000}}, stream.Options{Addresses: []string{"127.0.0.1"}, Ready: func(local net.Addr, _ uint16) {
			go func() {
				defer stop()
				for page == "" && ctx.Err() == nil { // the server may not listen yet
					if resp, err := http.Get("http://" + local.String()); err == nil {
						text, _ := io.ReadAll(resp.Body)
						resp.Body.Close()
						page = string(text)
					}
				}
			}()
		}})
		must("port-forward", err)
		if page != "page\n" {
			t.Errorf("port-forward: got %q", page)
		}

		if ref, err := r.GetImageRef(ctx, image); ref == "" || err != nil {
			t.Errorf("image: got %q, %v", ref, err)
		}
		if size, err := r.ImageStats(ctx); size == 0 || err != nil {
			t.Errorf("image stats: got %d, %v", size, err)
		}
		pulled := pushImage(t)
		_, err = r.PullImage(ctx, pulled, nil, nil)
		must("pull", err)
		images, err := r.ListImages(ctx)
		must("images", err)
		if !slices.ContainsFunc(images, func(i *runtimeapi.Image) bool { return slices.Contains(i.GetRepoTags(), pulled) }) {
			t.Errorf("got %v, want %s among them", images, pulled)
		}
		must("remove image", r.RemoveImage(ctx, pulled))
		if ref, err := r.GetImageRef(ctx, pulled); ref != "" || err != nil {
			t.Errorf("removed image: got %q, %v", ref, err)
		}

		if err := r.DeleteContainer(ctx, web); !errors.Is(err, kuberuntime.ErrRunning) {
			t.Errorf("delete what runs: got %v", err)
		}
		must("delete", r.DeleteContainer(ctx, job))
		now := int64(0)
		must("kill", r.KillPod(ctx, p, look(), &now))
		policy := kuberuntime.GCPolicy{MaxPerContainer: -1, MaxContainers: -1} // other tests have pods, too
		if _, err := r.GarbageCollect(ctx, policy, kuberuntime.Sources{Deleted: func(other string) bool { return other == uid }}); err != nil {
			t.Error(err)
		}
		if status := look(); len(status.Containers)+len(status.Sandboxes) > 0 {
			t.Errorf("left after garbage collection: %v", status)
		}
	})
}
