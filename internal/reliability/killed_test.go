package reliability

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// step is a request in which serve is killed, and its preparation.
type step struct {
	name    string
	prepare []func(*pod, context.Context, runtimeapi.RuntimeServiceClient) error
	call    func(*pod, context.Context, runtimeapi.RuntimeServiceClient) error
	short   bool                                      // included in short test runs
	done    func(p *pod, listed map[string]bool) bool // checks the list after success
}

func steps() []step {
	type calls = []func(*pod, context.Context, runtimeapi.RuntimeServiceClient) error
	return []step{
		{"RunPodSandbox", nil, (*pod).run, true, func(p *pod, l map[string]bool) bool { return l[p.id] }},
		{"CreateContainer", calls{(*pod).run}, (*pod).create, true, func(p *pod, l map[string]bool) bool { running, there := l[p.containerID]; return there && !running }},
		{"StartContainer", calls{(*pod).run, (*pod).create}, (*pod).start, false, func(p *pod, l map[string]bool) bool { return l[p.containerID] }},
		{"StopPodSandbox", calls{(*pod).run, (*pod).create, (*pod).start}, (*pod).stop, true, func(p *pod, l map[string]bool) bool { return len(l) == 2 && !l[p.id] && !l[p.containerID] }},
		{"RemovePodSandbox", calls{(*pod).run, (*pod).create, (*pod).start, (*pod).stop}, (*pod).remove, false, func(_ *pod, l map[string]bool) bool { return len(l) == 0 }},
	}
}

// A point is the time at which serve is killed: during or after the nth engine call of a request.
type point struct {
	n      int
	during bool
}

func (p point) String() string {
	if p.during {
		return fmt.Sprintf("during call %d", p.n)
	}
	return fmt.Sprintf("after call %d", p.n)
}

// TestServeKilledAtEveryStepOnEngine kills serve with SIGKILL at each engine call of the requests of a pod's life. The
// next serve lists the actual state, the request can be repeated, the pod can be removed, and nothing is left over.
func TestServeKilledAtEveryStepOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var all sync.WaitGroup
	for _, st := range steps() {
		if !st.short && os.Getenv("CRISHIM_TEST_LONG") == "" {
			continue
		}
		all.Go(func() { t.Run(st.name, func(t *testing.T) { killAtEveryStep(t, h, st) }) })
	}
	all.Wait()
}

// killAtEveryStep distributes the points of a request over several concurrent serves, because most of the time is spent
// waiting for the engine.
func killAtEveryStep(t *testing.T, h host, st step) {
	first := newKiller(t, h)
	points := first.points(t, st)
	first.serve.stop()
	var all sync.WaitGroup
	for n := range killers {
		all.Go(func() {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				k := newKiller(t, h)
				for i := n; i < len(points); i += killers {
					k.kill(t, st, points[i])
				}
				k.serve.stop()
			})
		})
	}
	all.Wait()
}

// killers is the number of concurrent serves per request.
const killers = 4

// killer is a serve that is killed by its engine calls.
type killer struct {
	host  host
	proxy *proxy
	serve *serve
}

func newKiller(t *testing.T, h host, flags ...string) *killer {
	t.Helper()
	proxy := startProxy(t, h.endpoint())
	return &killer{h, proxy, startServe(t, proxy.Host, flags...)}
}

// points makes a request once and returns a point for each engine call.
func (k *killer) points(t *testing.T, st step) []point {
	t.Helper()
	calls := k.calls(t, st)
	var points []point
	for i, call := range calls {
		points = append(points, point{n: i + 1})
		if call[0] != 'G' { // read-only calls can be interrupted at any time
			points = append(points, point{n: i + 1, during: true})
		}
	}
	if len(points) < 3 {
		t.Fatalf("%s makes only these calls: %v", st.name, calls)
	}
	return points
}

// calls returns the engine calls of an undisturbed request.
func (k *killer) calls(t *testing.T, st step) []string {
	t.Helper()
	p := k.prepared(t, st)
	k.proxy.Set(nil)
	if err := st.call(p, t.Context(), k.serve); err != nil {
		t.Fatalf("%s: %v", st.name, err)
	}
	calls := k.proxy.Calls()
	k.gone(t, p)
	return calls
}

func (k *killer) prepared(t *testing.T, st step) *pod {
	t.Helper()
	p := k.host.pod(t)
	for _, f := range st.prepare {
		if err := f(p, t.Context(), k.serve); err != nil {
			t.Fatalf("prepare for %s: %v", st.name, err)
		}
	}
	return p
}

func (k *killer) kill(t *testing.T, st step, at point) {
	t.Helper()
	p := k.prepared(t, st)
	var once sync.Once
	k.proxy.Set(func(n int, _ string) fault {
		end := func() { once.Do(k.serve.kill) }
		switch {
		case n != at.n:
			return fault{}
		case at.during:
			return fault{During: end}
		default:
			return fault{After: end}
		}
	})
	_ = st.call(p, t.Context(), k.serve)
	once.Do(k.serve.kill) // in case the request made fewer calls than before
	k.proxy.Set(nil)
	k.serve.start()
	t.Logf("%s, killed %v", st.name, at)
	k.truthful(t, p)
	k.again(t, st, p)
	k.gone(t, p)
}

// truthful compares serve's lists with the engine. The engine may still be busy with an abandoned request.
func (k *killer) truthful(t *testing.T, p *pod) {
	t.Helper()
	wait(t, func() error {
		before, err := p.onEngine(t.Context())
		if err != nil {
			return err
		}
		listed, err := p.listed(t.Context(), k.serve)
		if err != nil {
			return err
		}
		if !maps.Equal(before, listed) {
			return fmt.Errorf("the engine has %v, serve lists %v", before, listed)
		}
		return nil
	})
}

// again repeats the request, like a kubelet without a response.
func (k *killer) again(t *testing.T, st step, p *pod) {
	t.Helper()
	if err := st.call(p, t.Context(), k.serve); err != nil && status.Code(err) != codes.AlreadyExists {
		t.Errorf("%s again: %v", st.name, err)
	}
}

// gone stops and removes all sandboxes of the pod and waits until nothing is left.
func (k *killer) gone(t *testing.T, p *pod) {
	t.Helper()
	ids, err := p.sandboxes(t.Context(), k.serve)
	if err != nil {
		t.Error(err)
	}
	if _, err := p.onEngine(t.Context()); err != nil {
		t.Error(err)
	}
	for _, p.id = range ids {
		if err := p.stop(t.Context(), k.serve); err != nil {
			t.Error(err)
		}
		if err := p.remove(t.Context(), k.serve); err != nil {
			t.Error(err)
		}
	}
	wait(t, func() error { return p.left(t.Context()) })
	wait(t, func() error { return none("open files of serve", k.serve.open(p.config.GetLogDirectory())) })
	wait(t, func() error { return none("files of serve", k.serve.nextToSocket()) })
}
