package verbs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

const (
	podFile       = `{"metadata": {"name": "web", "namespace": "shop"}, "log_directory": "/nonexistent/logs"}`
	containerFile = "metadata: {name: app}\nimage: {image: busybox}\n"
)

// lastRequest is the newest request of a type that the stub got.
func lastRequest[T any](t *testing.T, s *stubcri.Server) T {
	t.Helper()
	var last T
	found := false
	for _, call := range s.Calls() {
		if r, ok := call.Request.(T); ok {
			last, found = r, true
		}
	}
	if !found {
		t.Fatalf("no %T among %v", last, s.Methods())
	}
	return last
}

// TestHintsQuoteNames: CRI allows any characters in names, and a hint is a line for the shell.
func TestHintsQuoteNames(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	if pod := c.run("runp", c.file("pod.json", strings.Replace(podFile, "web", "w;reboot", 1))); pod.code != 0 {
		t.Fatalf("runp: %+v", pod)
	}
	c.run("rmp", "w;reboot").want(t, 1, "", "crishim: pod w;reboot still runs\nhint: `crishim stopp 'w;reboot'` stops it, `crishim rmp -f 'w;reboot'` does both\n")
}

func TestLifeOfAContainer(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	pod := c.run("runp", c.file("pod.json", podFile))
	if pod.code != 0 || len(pod.out) != 65 || pod.err != "" {
		t.Fatalf("runp: %+v", pod)
	}
	if uid := lastRequest[*runtimeapi.RunPodSandboxRequest](t, c.stub).GetConfig().GetMetadata().GetUid(); len(uid) != 36 {
		t.Errorf("the made-up uid is %q, want a UUID", uid)
	}
	container := c.run("create", "shop/web", c.file("container.yaml", containerFile))
	if container.code != 0 || len(container.out) != 65 || container.err != "" {
		t.Fatalf("create: %+v", container)
	}
	created := lastRequest[*runtimeapi.CreateContainerRequest](t, c.stub)
	if got := created.GetSandboxConfig().GetMetadata().GetName(); got != "web" {
		t.Errorf("the pod's configuration was not asked for: its name is %q", got)
	}
	if got := created.GetConfig().GetImage().GetUserSpecifiedImage(); got != "busybox" {
		t.Errorf("user_specified_image is %q, want busybox", got)
	}
	c.run("start", "web/app").want(t, 0, "web/app\n", "")
	c.run("ps", "-o", "name").want(t, 0, "shop/web/app\n", "")
	c.run("rm", "app").want(t, 1, "", "crishim: container app still runs\nhint: `crishim stop app` stops it, `crishim rm -f app` kills and removes it\n")
	c.run("rmp", "web").want(t, 1, "", "crishim: pod web still runs\nhint: `crishim stopp web` stops it, `crishim rmp -f web` does both\n")
	c.run("stop", "app", "-t", "3").want(t, 0, "app\n", "")
	if got := lastRequest[*runtimeapi.StopContainerRequest](t, c.stub).GetTimeout(); got != 3 {
		t.Errorf("grace period is %d, want 3", got)
	}
	c.run("rm", "--dry-run", "app").want(t, 0, "Would remove app\n", "")
	c.run("rm", "app").want(t, 0, "app\n", "")
	c.run("stopp", "web").want(t, 0, "Stopped sandbox web\n", "")
	c.run("rmp", "web").want(t, 0, "Removed sandbox web\n", "")
	if pods, containers := c.stub.Left(); pods+containers != 0 {
		t.Errorf("%d pods and %d containers are left", pods, containers)
	}
}

func TestEachArgumentIsTried(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web")
	c.stub.AddContainer(pod, "a")
	c.stub.AddContainer(pod, "b")
	c.run("stop", "-t", "0", "nosuch1", "a", "nosuch2").want(t, 1, "a\n",
		"crishim: there is no container \"nosuch1\"\nhint: `crishim ps -a` lists them\n"+
			"crishim: there is no container \"nosuch2\"\nhint: `crishim ps -a` lists them\n")
	r := c.run("rm", "--all", "--force")
	if r.code != 0 || strings.Count(r.out, "\n") != 2 || !strings.HasPrefix(r.err, "removing 2 containers:\n  default/web/") || strings.Count(r.err, "\n") != 3 {
		t.Errorf("rm --all: %+v", r)
	}
	if _, containers := c.stub.Left(); containers != 0 {
		t.Errorf("%d containers are left", containers)
	}
}

func TestDefaultGraceIsTenSeconds(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.AddContainer(c.stub.AddPod("default", "web"), "a")
	c.run("stop", "a").want(t, 0, "a\n", "")
	if got := lastRequest[*runtimeapi.StopContainerRequest](t, c.stub).GetTimeout(); got != 10 {
		t.Errorf("grace period is %d, want 10", got)
	}
}

func TestDryRunsSendNothing(t *testing.T) {
	c := &commandTest{t: t, vars: map[string]string{}}
	c.run("runp", "--dry-run", "--runtime", "kata", c.file("pod.yaml", "metadata: {name: web, namespace: shop, uid: u}\nport_mappings: [{protocol: UDP, container_port: 53}]\n")).want(t, 0,
		`{
  "config": {
    "metadata": {
      "name": "web",
      "namespace": "shop",
      "uid": "u"
    },
    "port_mappings": [
      {
        "container_port": 53,
        "protocol": "UDP"
      }
    ]
  },
  "runtime_handler": "kata"
}
`, "")
	r := c.run("run", "--dry-run", "--name", "x", "-e", "A=<b>", "-m", "64Mi", "-p", "127.0.0.1:80:8080", "busybox", "sh", "-c", "echo -x")
	if r.code != 0 || !strings.Contains(r.out, `"value": "A`) && !strings.Contains(r.out, `"value": "<b>"`) || !strings.Contains(r.out, `"memory_limit_in_bytes": 67108864`) ||
		!strings.Contains(r.out, `"host_ip": "127.0.0.1"`) || !strings.Contains(r.out, `"echo -x"`) ||
		!strings.Contains(r.out, `"io.kubernetes.container.ports": "[{\"hostPort\":80,\"containerPort\":8080,\"protocol\":\"TCP\",\"hostIP\":\"127.0.0.1\"}]"`) {
		t.Errorf("run --dry-run: %+v", r)
	}
}

func TestImages(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	c.run("pull", "--if-missing", "-q", "registry.k8s.io/pause:3.9").want(t, 0, imageIDOf(t, c, "registry.k8s.io/pause:3.9")+"\n", "")
	c.run("rmi", "registry.k8s.io/pause:3.9").want(t, 1, "",
		"crishim: image \"registry.k8s.io/pause:3.9\" is pinned: the runtime needs it\nhint: `crishim rmi --force registry.k8s.io/pause:3.9` removes it anyway\n")
	c.run("rmi", "--prune", "--dry-run").want(t, 0, "Would delete: registry.example.com/app:v1, registry.example.com/app:latest\nWould free: at most 4.3MB\n", "")
	c.run("rmi", "registry.example.com/app:v1", "nosuch").want(t, 1,
		"Deleted: registry.example.com/app:v1\nDeleted: registry.example.com/app:latest\n",
		"crishim: warning: image \"registry.example.com/app:v1\" has 2 names, all go: registry.example.com/app:v1, registry.example.com/app:latest\n"+
			"crishim: no such image \"nosuch\"\nhint: `crishim images` lists them\n")
}

// TestPruneKeepsMountedImages: an image volume uses its image as a container uses its own.
func TestPruneKeepsMountedImages(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("app:1")
	c.stub.AddImage("model:1")
	c.stub.AddContainer(c.stub.AddPod("default", "web"), "main", func(config *runtimeapi.ContainerConfig) {
		config.Image = &runtimeapi.ImageSpec{Image: "app:1"}
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/model", Image: &runtimeapi.ImageSpec{Image: "model:1"}}}
	})
	c.run("rmi", "--prune", "--dry-run").want(t, 0, "Would delete: docker.io/library/busybox:latest\nWould free: at most 4.3MB\n", "")
}

func imageIDOf(t *testing.T, c *commandTest, ref string) string {
	t.Helper()
	r := c.run("images", "-q", ref)
	if r.code != 0 {
		t.Fatal(r.err)
	}
	return strings.TrimSpace(r.out)
}

func TestRunFromTwoFiles(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	r := c.run("run", c.file("container.yaml", containerFile), c.file("pod.json", podFile))
	if r.code != 0 || len(r.out) != 65 || r.err != "" {
		t.Errorf("two files: %+v", r)
	}
	c.stdin = containerFile + "---\n" + strings.ReplaceAll(podFile, "web", "web2")
	if r := c.run("run", "-"); r.code != 0 || len(r.out) != 65 || r.err != "" {
		t.Errorf("one file of two documents: %+v", r)
	}
	if pods, containers := c.stub.Left(); pods != 2 || containers != 2 {
		t.Errorf("%d pods and %d containers, want 2 of each", pods, containers)
	}
}

func TestRunLeavesNothingWhenItFails(t *testing.T) {
	for _, method := range []string{"PullImage", "RunPodSandbox", "CreateContainer", "StartContainer"} {
		t.Run(method, func(t *testing.T) {
			c := withStub(t, stubcri.Options{})
			c.stub.Fail(method, status.Error(codes.Internal, "broken on purpose"))
			r := c.run("run", "--with-pull", "--rm", "busybox", "true")
			if r.code != 125 || r.out != "" || !strings.HasPrefix(r.err, "crishim: ") || !strings.Contains(r.err, "broken on purpose\n") {
				t.Errorf("result is %+v", r)
			}
			if pods, containers := c.stub.Left(); pods+containers != 0 {
				t.Errorf("%d pods and %d containers are left", pods, containers)
			}
		})
	}
	for _, method := range []string{"PullImage", "RunPodSandbox", "CreateContainer", "StartContainer", "ContainerStatus"} {
		t.Run(method+" interrupted", func(t *testing.T) {
			c := withStub(t, stubcri.Options{})
			var once sync.Once
			c.stub.Before(method, func(ctx context.Context) {
				once.Do(func() {
					syscall.Kill(syscall.Getpid(), syscall.SIGINT)
					<-ctx.Done()
				})
			})
			if r := c.run("run", "--with-pull", "--rm", "busybox", "true"); r.code != 130 {
				t.Errorf("result is %+v", r)
			}
			if pods, containers := c.stub.Left(); pods+containers != 0 {
				t.Errorf("%d pods and %d containers are left", pods, containers)
			}
		})
	}
}

func TestRunOfACommandThatIsNotInTheImage(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.Fail("StartContainer", status.Error(codes.Unknown, `exec: "nosuch": executable file not found in $PATH: unknown`))
	c.run("run", "busybox", "nosuch").want(t, cli.ExitNotFound, "",
		"crishim: exec: \"nosuch\": executable file not found in $PATH\nhint: `crishim run --rm -it busybox sh` looks at what is in the image\n")
	c.run("run", "busybox", "sh").want(t, cli.ExitNotFound, "", "crishim: exec: \"nosuch\": executable file not found in $PATH\n")
}

func TestFirstSignalCancels(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	left := make(chan time.Duration, 1)
	c.stub.Before("ListContainers", func(ctx context.Context) {
		syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
		<-ctx.Done()
		limit, _ := ctx.Deadline()
		left <- time.Until(limit)
	})
	c.run("--timeout", "1m", "ps").want(t, 143, "", "crishim: terminated\n")
	if d := <-left; d < time.Second {
		t.Errorf("the call was ended by its limit, not by the signal: %s were left", d)
	}
}

// Verbs that follow succeed at Ctrl-C. Called as crictl, they also succeed at
// SIGTERM.
func TestFollowingIsEndedBySignals(t *testing.T) {
	for verb, method := range map[string]string{
		"events": "GetContainerEvents", "stats -w": "ListContainerStats", "statsp -w -o json": "ListPodSandboxStats",
		"metricsp -w": "ListPodSandboxMetrics", "logs -f web": "ContainerStatus", "port-forward pod :80": "PortForward",
	} {
		for _, test := range []struct {
			signal syscall.Signal
			name   string
			code   int
			errs   string
		}{
			{syscall.SIGINT, "crishim", 0, ""},
			{syscall.SIGTERM, "crishim", 143, "crishim: terminated\n"},
			{syscall.SIGHUP, "crishim", 129, "crishim: hangup\n"},
			{syscall.SIGTERM, "crictl", 0, ""},
		} {
			t.Run(test.name+" "+verb+" "+test.signal.String(), func(t *testing.T) {
				c, _ := withLog(t)
				c.stub.Before(method, func(ctx context.Context) {
					syscall.Kill(syscall.Getpid(), test.signal)
					<-ctx.Done()
				})
				c.runAs(t.Context(), test.name, strings.Fields(verb)...).want(t, test.code, "", test.errs)
			})
		}
	}
}

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestWhatCannotBeWrittenFails(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for _, line := range []string{"help", "help ps", "ps --help", "--version", "ps", "pods -o json", "version", "inspect web", "completion bash", "config", "run jsonschema"} {
		var errs test.Buffer
		env := &cli.Process{Out: full{}, Err: &errs, Now: testTime, Version: "v0.0.0-test", LookupEnv: func(key string) (string, bool) {
			if key == "CONTAINER_RUNTIME_ENDPOINT" {
				return c.stub.Endpoint, true
			}
			return "", false
		}}
		if code := commands.Main(t.Context(), append([]string{"crishim"}, strings.Fields(line)...), env); code != 1 || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: exit %d, stderr %q", line, code, errs.String())
		}
	}
}

func TestNoDaemonSpeaksInErrors(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for method, line := range map[string]string{"PullImage": "pull app", "UpdateContainerResources": "update --memory 1g web"} {
		c.stub.Fail(method, status.Error(codes.Unknown, "Error response from daemon: it is broken"))
		if r := c.run(strings.Fields(line)...); r.code != 1 || !strings.HasSuffix(r.err, "it is broken\n") || strings.Contains(r.err, "daemon") {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

func TestRuntimeErrorIsOneSentence(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	c.stub.Fail("ListContainers", status.Error(codes.Internal, "disk \x1b[2J on fire"))
	r := c.run("ps")
	if r.code != 1 || r.out != "" || strings.Contains(r.err, "rpc error") || strings.Contains(r.err, "\x1b") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("result is %+v", r)
	}
}

// --all and --selector print the names of their targets. A dry run that skips targets names them and succeeds.
func TestWhatAllWouldTake(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.Labels = map[string]string{"app": "web"} })
	runs := c.stub.AddContainer(pod, "runs", func(o *runtimeapi.ContainerConfig) { o.Labels = map[string]string{"app": "web"} })
	ended := c.stub.AddContainer(pod, "ended")
	c.stub.Exit(ended, 1)
	named := func(name, id string) string { return "default/web" + name + " (" + id[:13] + ")" }
	left := "Would leave " + named("/runs", runs) + ": it still runs, --force stops it first\n"
	for _, tt := range []struct {
		args []string
		code int
		out  []string
		err  string
	}{
		{[]string{"rm", "-a", "--dry-run"}, 0, []string{left, "Would remove " + named("/ended", ended) + "\n"}, ""},
		{[]string{"rm", "--selector", "app=web", "--dry-run"}, 0, []string{left}, ""},
		{[]string{"rm", "--selector", "app=web"}, 1, nil, "crishim: container " + named("/runs", runs) + " still runs; --force stops it first\n"},
		{[]string{"rmp", "-a", "--dry-run"}, 0, []string{"Would leave sandbox " + named("", pod) + ": it still runs, --force stops it first\n"}, ""},
		{[]string{"rmp", "-a"}, 1, nil, "removing 1 pod:\n  " + named("", pod) + "\ncrishim: pod " + named("", pod) + " still runs; --force stops it first\n"},
		{[]string{"stop", "-a", "--dry-run"}, 0, []string{"Would stop " + named("/runs", runs) + "\n"}, ""},
		{[]string{"stopp", "--selector", "app", "--dry-run"}, 0, []string{"Would stop sandbox " + named("", pod) + "\n"}, ""},
		{[]string{"stopp", "web", "--dry-run"}, 0, []string{"Would stop sandbox web\n"}, ""},
		{[]string{"rm", "--selector", "app=wbe"}, 0, nil, "crishim: warning: no container matches the selector\n"},
		{[]string{"stop", "--selector", "app=wbe"}, 0, nil, "crishim: warning: no running container matches the selector\n"},
		{[]string{"rmp", "--selector", "app=wbe"}, 0, nil, "crishim: warning: no pod matches the selector\n"},
		{[]string{"logs", "--selector", "app=wbe"}, 0, nil, "crishim: warning: no container matches the selector\n"},
		{[]string{"exec", "--selector", "app=wbe", "uptime"}, 125, nil, "crishim: no running container matches the filters\n"},
	} {
		r := c.run(tt.args...)
		out := r.out
		for _, want := range tt.out {
			out = strings.Replace(out, want, "", 1)
		}
		if r.code != tt.code || out != "" || strings.Count(r.out, "\n") != len(tt.out) || r.err != tt.err {
			t.Errorf("%v: got %+v, want %d, %q, %q", tt.args, r, tt.code, tt.out, tt.err)
		}
	}
	if pods, containers := c.stub.Left(); pods != 1 || containers != 2 {
		t.Errorf("%d pods and %d containers are left", pods, containers)
	}
}

// TestRunpLocksHostPorts checks that only a pod with host ports takes their lock, and that a failure to give it back is
// reported.
func TestRunpLocksHostPorts(t *testing.T) {
	t.Parallel()
	for ports, wanted := range map[string]int{`{"container_port": 80}`: 0, `{"container_port": 80, "host_port": 8080}`: 1} {
		c := withStub(t, stubcri.Options{})
		c.stub.Before("RunPodSandbox", func(context.Context) {
			locks, err := filepath.Glob(filepath.Join(c.vars["CRISHIM_ROOT"], "locks", "*.lock"))
			if err != nil || len(locks) != wanted {
				t.Errorf("%s: got locks %v, %v, want %d", ports, locks, err, wanted)
			}
			for _, lock := range locks {
				if err := os.Remove(lock); err != nil {
					t.Error(err)
				}
			}
		})
		r := c.run("runp", c.file("pod.json", `{"metadata": {"name": "web"}, "port_mappings": [`+ports+`]}`))
		if r.code != wanted || wanted == 1 && !strings.Contains(r.err, ".lock: no such file or directory") {
			t.Errorf("%s: got %+v", ports, r)
		}
	}
}

// TestAFailedStopIsNotRecorded checks that a stop that fails does not explain a later end of the container.
func TestAFailedStopIsNotRecorded(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	id := c.stub.AddContainer(c.stub.AddPod("default", "web"), "main")
	stops := filepath.Join(c.vars["CRISHIM_ROOT"], "stops.jsonl")
	c.stub.Fail("StopContainer", errors.New("no answer"))
	for _, verb := range []string{"stop", "kill"} {
		if r := c.run(verb, id); r.code != 1 {
			t.Errorf("%s: got %+v", verb, r)
		}
		if text, err := os.ReadFile(stops); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: recorded %s, %v", verb, text, err)
		}
	}
	c.stub.Fail("StopContainer", nil)
	if r := c.run("stop", id); r.code != 0 {
		t.Errorf("got %+v", r)
	}
	if text, err := os.ReadFile(stops); err != nil || !strings.Contains(string(text), "for crishim stop") {
		t.Errorf("recorded %s, %v", text, err)
	}
}

// TestDescribeWithoutTheRecordOfStops checks that a damaged record takes only its own part away.
func TestDescribeWithoutTheRecordOfStops(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddContainer(c.stub.AddPod("default", "web"), "main")
	if err := os.MkdirAll(filepath.Join(c.vars["CRISHIM_ROOT"], "stops.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{{"describe", "web"}, {"why", "web"}, {"why"}} {
		if r := c.run(line...); r.code != 0 || strings.Count(r.err, "stops.jsonl: not a regular file\n") != 1 {
			t.Errorf("%v: got %+v", line, r)
		}
	}
}
