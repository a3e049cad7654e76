package verbs

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// faultLine is a command line that calls a runtime.
type faultLine struct {
	args  []string
	calls []string // set for verbs that follow; nil: found by running the line
}

// faultLines has a line for every verb that talks to a runtime, about the node
// that faultNode makes.
func faultLines(c *commandTest) map[string]faultLine {
	podJSON := c.file("pod.json", podFile)
	containerYAML := c.file("container.yaml", containerFile)
	manifest := c.file("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: made}\nspec:\n  containers: [{name: main, image: busybox}]\n")
	line := func(args ...string) faultLine { return faultLine{args: args} }
	return map[string]faultLine{
		"version": line("version"), "info": line("info"), "runtime-config": line("runtime-config"),
		"update-runtime-config": line("update-runtime-config", "--pod-cidr", "10.1.0.0/16"),
		"images":                line("images"), "pull": line("pull", "busybox"), "rmi": line("rmi", "spare"), "inspecti": line("inspecti", "busybox"),
		"imagefsinfo": line("imagefsinfo"), "df": line("df"), "history": line("history", "busybox"), "diff": line("diff", "app"), "who": line("who", ":"+listenPort(c.t)), "save": line("save", "busybox"), "load": line("load", "-i", c.file("image.tar", string(test.ImageArchive("app:1", nil)))), "runp": line("runp", podJSON), "pods": line("pods"), "inspectp": line("inspectp", "web"),
		"apply": line("apply", "-f", manifest), "delete": line("delete", "web"), "describe": line("describe", "web"), "why": line("why", "web"),
		"sync": line("sync", "--once", c.t.TempDir()), "gc": line("gc"), "stopp": line("stopp", "web"), "rmp": line("rmp", "-f", "web"),
		"create": line("create", "web", containerYAML), "start": line("start", "new"), "run": line("run", "-d", "--name", "one", "busybox"),
		"ps": line("ps", "-a"), "inspect": line("inspect", "app"), "logs": line("logs", "app"), "update": line("update", "--cpu-share", "2", "app"),
		"stop": line("stop", "-t", "0", "app"), "rm": line("rm", "-f", "app"), "exec": line("exec", "--sync", "app", "true"),
		"kill": line("kill", "app"), "pause": line("pause", "--dry-run", "app"), "unpause": line("unpause", "--dry-run", "app"),
		"restart":      line("restart", "--dry-run", "app"),
		"attach":       {[]string{"attach", "app"}, []string{"Version", "ListContainers", "Attach"}},
		"port-forward": {[]string{"port-forward", "web", "0:80"}, []string{"Version", "PortForward"}},
		"wait":         line("wait", "--for", "running", "app"), "cp": line("cp", "app:/etc/hostname", "-"), "debug": line("debug", "--image", "busybox", "app", "true"),
		"stats": line("stats", "-s", "1"), "statsp": line("statsp", "-s", "1"),
		"top":         line("top", "--once", "--seconds", "100ms"),
		"metricdescs": line("metricdescs"), "metricsp": line("metricsp"),
		"events":     {[]string{"events"}, []string{"Version", "GetContainerEvents"}},
		"checkpoint": line("checkpoint", "--export", "/nonexistent/x", "app"),
	}
}

// faultless are the verbs that need no runtime, or whose subject is that there
// may be none.
func faultless() []string {
	return []string{"endpoints", "doctor", "dump", "config", "completion", "serve"}
}

// unlimited are the calls that take as long as the user lets them.
func unlimited() []string {
	return []string{"PullImage", "ExecSync", "CheckpointContainer", "GetContainerEvents"}
}

// silent says that a verb is right to say nothing: an image that cannot be looked
// up is pulled, the network and disks of a pod and the space for images may be unknown, what
// is waited for may be there before the first event, and the user ends what goes on
// forever.
func silent(verb, method string) bool {
	return method == "GetContainerEvents" && verb == "wait" || method == "ImageStatus" && (verb == "run" || verb == "debug") ||
		method == "ImageFsInfo" && verb != "imagefsinfo" && verb != "df" || method == "ListPodSandboxStats" && (verb == "stats" || verb == "top") ||
		(method == "ListMetricDescriptors" || method == "ListPodSandboxMetrics") && (verb == "stats" || verb == "statsp" || verb == "top") || verb == "events" || verb == "port-forward"
}

// patient are the verbs that clean up behind themselves, whatever happens, and
// wait up to a minute for a runtime that hangs then.
func patient() []string { return []string{"debug", "apply"} }

func faultNode(t *testing.T) *commandTest {
	t.Helper()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	c.stub.AddImage("spare")
	web := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	app := c.stub.AddContainer(web, "app", func(o *runtimeapi.ContainerConfig) { o.LogPath = "app.log" })
	c.stub.Log(app, "stdout", "hello")
	c.stub.AddCreated(web, "new")
	return c
}

// TestEveryVerbWhenARuntimeFails breaks each call that each verb makes: the
// runtime dies in it, it hangs, the user gives up. Every command ends, says so
// in sentences, and claims no success.
func TestEveryVerbWhenARuntimeFails(t *testing.T) {
	lines := faultLines(faultNode(t))
	for _, command := range testApp().Commands {
		name := command.Name
		if _, ok := lines[name]; !ok && !slices.Contains(faultless(), name) {
			t.Errorf("what does %s do when its runtime fails?", name)
		}
	}
	for verb, line := range lines {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			for _, method := range line.methods(t) {
				dies := faultNode(t)
				dies.stub.Before(method, func(context.Context) { dies.stub.Stop() })
				dies.fails(t, verb, method, "dies", line.args...)

				if slices.Contains(patient(), verb) {
					continue
				}
				if !slices.Contains(unlimited(), method) {
					hangs := faultNode(t)
					hangs.stub.Before(method, func(ctx context.Context) { <-ctx.Done() })
					hangs.fails(t, verb, method, "hangs", append([]string{"--timeout", "100ms", "--connect-timeout", "100ms"}, line.args...)...)
				}

				left := faultNode(t)
				ctx, cancel := context.WithCancel(t.Context())
				left.stub.Before(method, func(call context.Context) {
					cancel()
					<-call.Done()
				})
				left.failsIn(ctx, t, verb, method, "is left by the user", line.args...)
				cancel()
			}
		})
	}
}

// methods are the calls of a line, each once.
func (l faultLine) methods(t *testing.T) []string {
	t.Helper()
	if l.calls != nil {
		return l.calls
	}
	c := faultNode(t)
	if r := c.run(l.args...); len(c.stub.Methods()) < 2 {
		t.Fatalf("%v makes only these calls: %v; %+v", l.args, c.stub.Methods(), r)
	}
	methods := c.stub.Methods()
	slices.Sort(methods)
	return slices.Compact(methods)
}

func (c *commandTest) fails(t *testing.T, verb, method, how string, args ...string) {
	t.Helper()
	c.failsIn(t.Context(), t, verb, method, how, args...)
}

func (c *commandTest) failsIn(ctx context.Context, t *testing.T, verb, method, how string, args ...string) {
	t.Helper()
	ended := make(chan result, 1)
	go func() { ended <- c.runAs(ctx, "crishim", args...) }()
	select {
	case r := <-ended:
		said := strings.Contains(r.err, "crishim: ") || strings.Contains(r.err, "warning: ")
		if r.code == 0 && !said && !silent(verb, method) {
			t.Errorf("%s: %s %s: no word about it: %+v", verb, method, how, r)
		}
		if problem := spoken(r.err); problem != "" {
			t.Errorf("%s: %s %s: %s", verb, method, how, problem)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: %s %s: it does not end", verb, method, how)
	}
}

// spoken says what is wrong with messages that should be sentences.
func spoken(text string) string {
	for _, sign := range []string{"rpc error", "goroutine ", "panic", "%!"} {
		if strings.Contains(text, sign) {
			return fmt.Sprintf("%q in %q", sign, text)
		}
	}
	return ""
}

// TestEveryVerbWhereACallIsMissing makes each call of each verb unimplemented,
// as in older runtimes. The verb succeeds without the call, or says that the
// runtime does not implement it.
func TestEveryVerbWhereACallIsMissing(t *testing.T) {
	for verb, line := range faultLines(faultNode(t)) {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			for _, method := range line.methods(t) {
				if method == "Version" { // that is no CRI runtime
					continue
				}
				c := faultNode(t)
				c.stub.Fail(method, status.Error(codes.Unimplemented, "unknown method "+method))
				r := c.run(line.args...)
				if problem := spoken(r.err); problem != "" {
					t.Errorf("%s without %s: %s", verb, method, problem)
				}
				if r.code != 0 && !strings.Contains(r.err, notImplemented) {
					t.Errorf("%s without %s: %+v", verb, method, r)
				}
			}
		})
	}
}

// listenPort returns a port of this process that is listened on until the test ends.
func listenPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
