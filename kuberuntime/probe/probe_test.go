package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/crishim/crishim/kuberuntime/plan"
)

// hostPort splits the address of a listener.
func hostPort(t *testing.T, address string) (string, int) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

func TestRunHTTP(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/header" && r.Header.Get("X-Probe") == "yes" && r.Host == "name" && r.URL.RawQuery == "a=b":
		case r.URL.Path == "/away":
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		default:
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	host, port := hostPort(t, server.Listener.Addr().String())
	target := Target{PodIP: host, Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
	headers := []v1.HTTPHeader{{Name: "X-Probe", Value: "yes"}, {Name: "host", Value: "name"}}
	cases := []struct {
		name string
		get  v1.HTTPGetAction
		want string
	}{
		{"headers and query", v1.HTTPGetAction{Path: "/header?a=b", Port: intstr.FromString("web"), Scheme: "HTTP", HTTPHeaders: headers}, ""},
		{"redirect to another host", v1.HTTPGetAction{Path: "/away", Port: intstr.FromInt32(int32(port)), Scheme: "HTTP"}, ""},
		{"server error", v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(int32(port)), Scheme: "HTTP"}, "500 Internal Server Error: broken"},
		{"plain server behind https", v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(int32(port)), Scheme: "HTTPS"}, "HTTP"},
	}
	for _, c := range cases {
		err := Run(t.Context(), &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &c.get}, TimeoutSeconds: 30}, target, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestRunHTTPAsTheKubelet: headers of the manifest replace the defaults, and the number of redirects is limited.
func TestRunHTTPAsTheKubelet(t *testing.T) {
	t.Parallel()
	type seen struct{ agent, accept, encoding []string }
	var got seen
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = seen{r.Header["User-Agent"], r.Header["Accept"], r.Header["Accept-Encoding"]}
		if left, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); err == nil && left > 0 {
			http.Redirect(w, r, "/"+strconv.Itoa(left-1), http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)
	host, port := hostPort(t, server.Listener.Addr().String())
	header := func(name, value string) []v1.HTTPHeader { return []v1.HTTPHeader{{Name: name, Value: value}} }
	cases := []struct {
		name, path string
		headers    []v1.HTTPHeader
		want       seen
		err        string
	}{
		{"none", "/", nil, seen{[]string{"kube-probe/crishim"}, []string{"*/*"}, nil}, ""},
		{"own agent", "/", header("user-agent", "mine/1"), seen{[]string{"mine/1"}, []string{"*/*"}, nil}, ""},
		{"empty agent", "/", header("User-Agent", ""), seen{nil, []string{"*/*"}, nil}, ""},
		{"own accept", "/", header("Accept", "text/plain"), seen{[]string{"kube-probe/crishim"}, []string{"text/plain"}, nil}, ""},
		{"empty accept", "/", header("Accept", ""), seen{[]string{"kube-probe/crishim"}, nil, nil}, ""},
		{"nine redirects", "/9", nil, seen{[]string{"kube-probe/crishim"}, []string{"*/*"}, nil}, ""},
		{"ten redirects", "/10", nil, seen{[]string{"kube-probe/crishim"}, []string{"*/*"}, nil}, "stopped after 10 redirects"},
	}
	for _, c := range cases {
		get := &v1.HTTPGetAction{Path: c.path, Port: intstr.FromInt32(int32(port)), Scheme: "HTTP", HTTPHeaders: c.headers}
		err := Run(t.Context(), &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: get}, TimeoutSeconds: 30}, Target{PodIP: host}, nil)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(seen{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestRunTCPAndGRPC(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	state := health.NewServer()
	state.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, state)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	host, port := hostPort(t, l.Addr().String())
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, closedPort := hostPort(t, closed.Addr().String())
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	down := "down"
	cases := []struct {
		name    string
		handler v1.ProbeHandler
		want    string
	}{
		{"tcp", v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}, ""},
		{"tcp refused", v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(int32(closedPort))}}, "refused"},
		{"grpc", v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port)}}, ""},
		{"grpc not serving", v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port), Service: &down}}, "NOT_SERVING"},
	}
	for _, c := range cases {
		err := Run(t.Context(), &v1.Probe{ProbeHandler: c.handler, TimeoutSeconds: 30}, Target{PodIP: host}, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestWithoutAResult: attempts with an UnknownError never change the result.
func TestWithoutAResult(t *testing.T) {
	t.Parallel()
	broken := func(context.Context, string, []string, time.Duration) error {
		return &UnknownError{errors.New("the runtime is away")}
	}
	none := intstr.FromString("none")
	for name, handler := range map[string]v1.ProbeHandler{
		"exec":       {Exec: &v1.ExecAction{Command: []string{"true"}}},
		"http port":  {HTTPGet: &v1.HTTPGetAction{Path: "/", Port: none, Scheme: "HTTP"}},
		"http host":  {HTTPGet: &v1.HTTPGetAction{Host: "a b", Path: "/", Port: intstr.FromInt32(1), Scheme: "HTTP"}},
		"tcp port":   {TCPSocket: &v1.TCPSocketAction{Port: none}},
		"no handler": {},
	} {
		var told []Change
		m := NewManager(broken, func(c Change) { told = append(told, c) })
		w := &worker{manager: m, kind: plan.Liveness, probe: &v1.Probe{ProbeHandler: handler, FailureThreshold: 1}}
		for range 2 {
			if w.attempt(t.Context()) || w.result != plan.Unknown {
				t.Errorf("%s: got result %d, want none", name, w.result)
			}
		}
		if len(told) != 2 || told[0].Err == nil || told[0].Verdict {
			t.Errorf("%s: told of %+v", name, told)
		}
	}
}

func TestCounter(t *testing.T) {
	t.Parallel()
	var c counter
	for i, step := range []struct {
		ok   bool
		want plan.Result
	}{{false, plan.Unknown}, {false, plan.Failure}, {true, plan.Unknown}, {false, plan.Unknown}, {true, plan.Unknown}, {true, plan.Unknown}, {true, plan.Success}, {true, plan.Success}, {false, plan.Unknown}, {false, plan.Failure}} {
		if got := c.add(step.ok, 3, 2); got != step.want {
			t.Errorf("step %d: got %d, want %d", i, got, step.want)
		}
	}
}

// TestManager: other probes wait for the startup probe. Later the container fails its liveness probe.
func TestManager(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	healthy := map[string]bool{"startup": false, "liveness": true}
	exec := func(_ context.Context, _ string, cmd []string, _ time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		if healthy[cmd[0]] {
			return nil
		}
		return errors.New("not yet")
	}
	set := func(name string, ok bool) { mu.Lock(); healthy[name] = ok; mu.Unlock() }
	changes := make(chan Change, 100)
	m := NewManager(exec, func(c Change) { changes <- c })
	t.Cleanup(m.Close)
	probe := func(name string, failures int32) *v1.Probe {
		return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{name}}}, PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: failures}
	}
	c := Container{Target: Target{ContainerID: "c1"}, Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, Startup: probe("startup", 1000), Liveness: probe("liveness", 1)}
	m.Watch(c)
	m.Watch(c) // a second call changes nothing
	wait := func(kind plan.Kind, want plan.Result) {
		t.Helper()
		timeout := time.After(60 * time.Second)
		for {
			select {
			case got := <-changes:
				if got.Verdict && got.Kind == kind && got.Result == want {
					return
				}
				if got.Verdict && kind == plan.Startup && got.Kind != plan.Startup {
					t.Fatalf("%s came before the startup probe's success", got.Kind)
				}
			case <-timeout:
				t.Fatalf("no %s verdict", kind)
			}
		}
	}
	if first := <-changes; first.Kind != plan.Startup || first.Verdict || first.Err == nil {
		t.Fatalf("got %+v", first)
	}
	set("startup", true)
	wait(plan.Startup, plan.Success)
	wait(plan.Liveness, plan.Success)
	set("liveness", false)
	wait(plan.Liveness, plan.Failure)
	if m.Result("c1", plan.Liveness) != plan.Failure || m.Result("c1", plan.Readiness) != plan.Unknown {
		t.Error("wrong results")
	}
	set("readiness", true)
	c.Readiness = probe("readiness", 1)
	c.Readiness.SuccessThreshold = 2 // needs at least a second
	m.Watch(c)
	set("liveness", true)
	wait(plan.Readiness, plan.Success) // gives the liveness probe time for another attempt
	if m.Result("c1", plan.Liveness) != plan.Failure {
		t.Error("the verdict did not stay until the container is gone")
	}
	m.Drop("c2") // a different container
	if m.Result("c1", plan.Liveness) != plan.Failure {
		t.Error("the verdict did not stay")
	}
	m.Drop("c1")
	if m.Result("c1", plan.Liveness) != plan.Unknown {
		t.Error("the probe of a killed container still has a result")
	}
	m.Watch(c)
	m.Keep("u1", nil)
	if m.Result("c1", plan.Liveness) != plan.Unknown {
		t.Error("the probe of a container that is gone still has a result")
	}
}

func TestFirstDelayWhenTheClockIsPutBack(t *testing.T) {
	started := time.Unix(100_000, 0)
	for _, c := range []struct{ step, want time.Duration }{{0, 10 * time.Second}, {-time.Hour, 10 * time.Second}, {time.Hour, 0}} {
		w := worker{
			manager: &Manager{now: func() time.Time { return started.Add(c.step) }}, probe: &v1.Probe{InitialDelaySeconds: 10}, container: Container{Started: started},
		}
		if got := w.firstDelay(time.Second); got != c.want {
			t.Errorf("after a step of %s: got %s, want %s", c.step, got, c.want)
		}
	}
}

// TestFirstDelayOfManyContainers: a new process spreads the first attempts of its probes.
func TestFirstDelayOfManyContainers(t *testing.T) {
	t.Parallel()
	began := time.Unix(100_000, 0)
	for _, c := range []struct {
		name      string
		after     time.Duration
		least     time.Duration
		different bool
	}{{"at the start", 0, 10 * time.Second, true}, {"later", 5 * time.Second, 10 * time.Second, true}, {"a period later", 20 * time.Second, 10 * time.Second, false}} {
		m := &Manager{now: func() time.Time { return began.Add(c.after) }, spread: began}
		seen := map[time.Duration]bool{}
		for range 100 {
			w := worker{manager: m, probe: &v1.Probe{InitialDelaySeconds: 10}, container: Container{Started: began.Add(c.after)}}
			delay := w.firstDelay(20 * time.Second)
			if delay < c.least || delay >= c.least+20*time.Second {
				t.Errorf("%s: got %s", c.name, delay)
			}
			seen[delay] = true
		}
		if (len(seen) > 1) != c.different {
			t.Errorf("%s: %d different delays", c.name, len(seen))
		}
	}
}

// TestManyCommandsAtOnce: no probe fails on a machine where commands time out if too many start at the same time.
func TestManyCommandsAtOnce(t *testing.T) {
	t.Parallel()
	const containers = 100
	var running atomic.Int32
	var m *Manager
	exec := func(context.Context, string, []string, time.Duration) error {
		defer running.Add(-1)
		if n := int(running.Add(1)); n > cap(m.starts) {
			return fmt.Errorf("timed out, as one of %d", n)
		}
		time.Sleep(2 * time.Millisecond) // lets other commands start
		return nil
	}
	ready := make(chan Change, 2*containers)
	m = NewManager(exec, func(c Change) { ready <- c })
	t.Cleanup(m.Close)
	for i := range containers {
		m.Watch(Container{Target: Target{ContainerID: strconv.Itoa(i)}, Pod: &v1.Pod{}, Readiness: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}, PeriodSeconds: 1}})
	}
	for range containers {
		select {
		case c := <-ready:
			if c.Err != nil || c.Result != plan.Success {
				t.Errorf("container %s: got %d, %v", c.Container.ContainerID, c.Result, c.Err)
			}
		case <-time.After(60 * time.Second):
			t.Fatal("not all became ready")
		}
	}
}

// TestLongCommandsHoldUpNoOther: hanging commands stop counting after startTime.
func TestLongCommandsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	hang, begun := make(chan struct{}), make(chan struct{})
	ready := make(chan Change, 1)
	m := NewManager(func(_ context.Context, id string, _ []string, _ time.Duration) error {
		if id != "quick" {
			begun <- struct{}{}
			<-hang
		}
		return nil
	}, func(c Change) {
		if c.Container.ContainerID == "quick" {
			ready <- c
		}
	})
	defer m.Close()
	defer close(hang)
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{}}, PeriodSeconds: 1}
	for i := range cap(m.starts) {
		m.Watch(Container{Target: Target{ContainerID: strconv.Itoa(i)}, Pod: &v1.Pod{}, Readiness: probe})
	}
	for range cap(m.starts) {
		<-begun
	}
	m.Watch(Container{Target: Target{ContainerID: "quick"}, Pod: &v1.Pod{}, Liveness: probe})
	select {
	case c := <-ready:
		if c.Result != plan.Success {
			t.Errorf("got %+v", c)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("it waits for hanging probes")
	}
}
