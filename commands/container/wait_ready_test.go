package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// readyFixture asks whether pods of a stub are ready.
type readyFixture struct {
	t    *testing.T
	stub *stubcri.Server
	root string
	out  test.Buffer
}

func newReadyFixture(t *testing.T) *readyFixture {
	t.Helper()
	return &readyFixture{t: t, stub: stubcri.Start(t, stubcri.Options{}), root: t.TempDir()}
}

func (f *readyFixture) dirs() pod.Dirs {
	return pod.DefaultDirs(func(name string) (string, bool) { return f.root, name == "CRISHIM_ROOT" })
}

func (f *readyFixture) look(sandbox string) (bool, string) {
	f.t.Helper()
	conn := connect(f.t, f.stub)
	res, err := conn.Runtime.PodSandboxStatus(f.t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		f.t.Fatal(err)
	}
	r := &readiness{printer: cli.NewPrinter(&cli.Process{Out: &f.out, Err: &f.out, Now: time.Now}), dirs: f.dirs(), conn: conn}
	defer r.close()
	ready, why, err := r.ofPod(f.t.Context(), res.GetStatus())
	if err != nil {
		f.t.Fatal(err)
	}
	return ready, why
}

func (f *readyFixture) want(sandbox string, ready bool, why string) {
	f.t.Helper()
	if got, text := f.look(sandbox); got != ready || text != why {
		f.t.Errorf("got %t, %q, want %t, %q", got, text, ready, why)
	}
}

// TestReadyWithoutProbes: a pod without probe results is ready when all its containers run.
func TestReadyWithoutProbes(t *testing.T) {
	t.Parallel()
	f := newReadyFixture(t)
	pod := f.stub.AddPod("default", "pod")
	f.want(pod, true, "")
	job := f.stub.AddCreated(pod, "init")
	f.want(pod, false, "container init is created")
	f.stub.Begin(job)
	f.stub.Exit(job, 0)
	f.want(pod, false, "container init is exited")
	web := f.stub.AddContainer(pod, "web")
	f.want(pod, true, "") // the first was an init container
	f.stub.AddContainer(pod, "debug-1", func(c *runtimeapi.ContainerConfig) { c.Labels = map[string]string{kube.LabelDebug: web} })
	f.stub.Exit(web, 0)
	f.want(pod, false, "container web is exited")
	f.stub.StopPod(pod)
	f.want(pod, false, "")
	paused := f.stub.AddPod("default", "paused")
	f.stub.AddContainer(paused, "web", func(c *runtimeapi.ContainerConfig) { c.Annotations = map[string]string{kube.AnnotationPaused: "true"} })
	f.want(paused, false, "container web is paused")
}

// TestReadyByProbes: while apply waits for a pod, apply's probes decide. Afterwards one attempt of each probe decides.
func TestReadyByProbes(t *testing.T) {
	t.Parallel()
	f := newReadyFixture(t)
	f.stub.AddImage("busybox:1")
	flag := filepath.Join(t.TempDir(), "ready")
	set, err := manifest.Read(manifest.Options{}, strings.NewReader(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: a, image: "busybox:1", readinessProbe: {exec: {command: [sh, -c, "test -e `+flag+`"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}}
`), "-")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(f.stub.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m, err := kuberuntime.New(t.Context(), kuberuntime.Options{
		Runtime: conn, Image: conn, Endpoint: f.stub.Endpoint, Dirs: f.dirs(),
		Host: criconfig.Host{Name: "node", CPUs: 1, Memory: 1 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := set.Pods[0].Pod
	if err := kuberuntime.Prepare(p, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	up := make(chan error, 1)
	go func() {
		_, _, err := m.Up(t.Context(), p, set, nil, kuberuntime.Wait{Until: kuberuntime.UntilReady})
		up <- err
	}()
	conn2 := connect(t, f.stub)
	sandbox := func() string {
		for {
			if list, err := conn2.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err == nil && len(list.GetContainers()) > 0 &&
				list.GetContainers()[0].GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				return list.GetContainers()[0].GetPodSandboxId()
			}
			select {
			case err := <-up:
				t.Fatalf("the pod is up: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	f.want(sandbox, false, "container a is not ready")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	f.want(sandbox, true, "")
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	if ready, why := f.look(sandbox); ready || !strings.HasPrefix(why, "container a is not ready: readiness probe failed: ") {
		t.Errorf("a failing probe of a pod that apply has left: got %t, %q", ready, why)
	}
	list, err := conn2.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	f.stub.Exit(list.GetContainers()[0].GetId(), 1)
	f.want(sandbox, false, "container a does not run")
}
