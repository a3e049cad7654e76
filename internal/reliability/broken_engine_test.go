package reliability

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ailment is a fault in an engine's response.
type ailment struct {
	name  string
	fault fault
	hangs bool // the engine never answers, so serve must cancel the request
}

// engineLimit is serve's timeout for a hanging engine.
const engineLimit = 3 * time.Second

func ailments() []ailment {
	return []ailment{
		{name: "dies before it has the request", fault: fault{Answer: cut}},
		{name: "dies with the answer", fault: fault{Body: truncate(0)}},
		{name: "truncates the answer", fault: fault{Body: truncate(3)}},
		{name: "answers garbage", fault: fault{Body: garble}},
		{name: "fails", fault: fault{Answer: answer(http.StatusInternalServerError, `{"message":"it is on fire"}`)}},
		{name: "fails without a reason", fault: fault{Answer: answer(http.StatusBadGateway, "<html>")}},
		{name: "hangs", fault: fault{Answer: hang}, hangs: true},
		{name: "is slow", fault: fault{Before: func() { time.Sleep(300 * time.Millisecond) }}}, // the delay under test
	}
}

// TestEngineBreaksInEveryStepOnEngine breaks one engine call per request of a pod's life. Each call that changes
// something gets a different fault; with CRISHIM_TEST_LONG=1 each call gets every fault. Every request must end. When
// the engine has recovered, serve's lists are correct, the request can be repeated, and nothing is left over.
func TestEngineBreaksInEveryStepOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k, short := newKiller(t, h), newKiller(t, h, "--runtime-request-timeout", engineLimit.String())
	for nth, st := range steps() {
		calls := k.calls(t, st)
		for n, call := range calls {
			for i, a := range ailments() {
				chosen := (n == 0 || call[0] != 'G') && (n+nth)%len(ailments()) == i
				switch {
				case !chosen && os.Getenv("CRISHIM_TEST_LONG") == "":
				case a.hangs:
					k.fall(t, short, st, n+1, a)
				default:
					k.fall(t, k, st, n+1, a)
				}
			}
		}
	}
	k.serve.stop()
	short.serve.stop()
}

// fall breaks the nth engine call of a request to the serve of breaks. All other requests use a serve that waits for
// its engine without limit.
func (k *killer) fall(t *testing.T, breaks *killer, st step, n int, a ailment) {
	t.Helper()
	p := k.prepared(t, st)
	breaks.proxy.Set(func(call int, _ string) fault {
		if call != n {
			return fault{}
		}
		return a.fault
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	err := st.call(p, ctx, breaks.serve)
	late := ctx.Err()
	cancel()
	breaks.proxy.Set(nil)
	what := fmt.Sprintf("%s when the engine %s in call %d", st.name, a.name, n)
	t.Logf("%s: %v", what, err)
	if late != nil {
		t.Errorf("%s: serve does not end it", what)
	}
	if err != nil && strings.Contains(err.Error(), "panic") || status.Code(err) == codes.Internal && strings.Contains(err.Error(), "internal error") {
		t.Errorf("%s: %v", what, err)
	}
	breaks.truthful(t, p)
	if err == nil {
		breaks.kept(t, st, p)
	}
	k.again(t, st, p)
	k.gone(t, p)
}

// kept fails the test if a successful request had no effect.
func (k *killer) kept(t *testing.T, st step, p *pod) {
	t.Helper()
	listed, err := p.listed(t.Context(), k.serve)
	if err != nil || !st.done(p, listed) {
		t.Errorf("%s has succeeded, and listed is %v, %v", st.name, listed, err)
	}
}

// TestEngineBreaksWhenAskedOnEngine applies each fault to each call while serve answers read-only requests.
func TestEngineBreaksWhenAskedOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	well, k := newKiller(t, h), newKiller(t, h, "--runtime-request-timeout", engineLimit.String())
	p := well.running(t) // uses the serve without a time limit
	k.proxy.Of(p.id, p.containerID)
	want := map[string]bool{p.id: true, p.containerID: true}
	for name, ask := range questions(p) {
		k.proxy.Set(nil)
		if err := ask(t.Context(), k.serve); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, a := range ailments() {
			k.proxy.Set(func(int, string) fault { return a.fault })
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			err := ask(ctx, k.serve)
			if ctx.Err() != nil || status.Code(err) == codes.Internal && strings.Contains(fmt.Sprint(err), "internal error") {
				t.Errorf("%s when the engine %s: %v", name, a.name, err)
			}
			// After an exec a list needs the engine again: it fails or is complete.
			if listed, err := p.listed(ctx, k.serve); ctx.Err() != nil || err == nil && !maps.Equal(listed, want) {
				t.Errorf("listed after %s when the engine %s: got %v, %v, want %v", name, a.name, listed, err, want)
			}
			cancel()
		}
	}
	k.proxy.Set(nil)
	k.truthful(t, p)
	well.gone(t, p)
	well.serve.stop()
	k.serve.stop()
}

func (k *killer) running(t *testing.T) *pod {
	t.Helper()
	return k.prepared(t, step{name: "a running pod", prepare: []func(*pod, context.Context, runtimeapi.RuntimeServiceClient) error{
		(*pod).run, (*pod).create, (*pod).start,
	}})
}

func questions(p *pod) map[string]func(context.Context, *serve) error {
	return map[string]func(context.Context, *serve) error{
		"Status": func(ctx context.Context, s *serve) error {
			_, err := s.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
			return err
		},
		"lists": func(ctx context.Context, s *serve) error {
			_, err := p.listed(ctx, s)
			return err
		},
		"ContainerStatus": func(ctx context.Context, s *serve) error {
			_, err := s.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.containerID, Verbose: true})
			return err
		},
		"ListContainerStats": func(ctx context.Context, s *serve) error {
			_, err := s.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
			return err
		},
		"ListPodSandboxStats": func(ctx context.Context, s *serve) error {
			_, err := s.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
			return err
		},
		"ExecSync": func(ctx context.Context, s *serve) error {
			_, err := s.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.containerID, Cmd: []string{"true"}, Timeout: 60})
			return err
		},
		"ListImages": func(ctx context.Context, s *serve) error {
			_, err := s.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
			return err
		},
		"ImageStatus": func(ctx context.Context, s *serve) error {
			_, err := s.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: testImage}, Verbose: true})
			return err
		},
		"ImageFsInfo": func(ctx context.Context, s *serve) error {
			_, err := s.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
			return err
		},
	}
}

// TestOneContainerIsBrokenOnEngine makes the engine fail for one container. All others must work.
func TestOneContainerIsBrokenOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	sick, well := k.running(t), k.running(t)
	k.proxy.Set(func(_ int, call string) fault {
		if strings.Contains(call, sick.containerID) {
			return fault{Answer: answer(http.StatusInternalServerError, `{"message":"it is on fire"}`)}
		}
		return fault{}
	})
	// A new serve has to inspect all containers.
	again := startServe(t, k.proxy.Host)
	for _, s := range []*serve{k.serve, again} {
		listed, err := well.listed(t.Context(), s)
		if err != nil || !listed[well.id] || !listed[well.containerID] {
			t.Errorf("the pod that is well: got %v, %v", listed, err)
		}
		for name, ask := range questions(well) {
			if err := ask(t.Context(), s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	list := h.crishim(t, again.endpoint()).run(t.Context(), "ps", "-a", "-q", "--no-trunc")
	if list.code != 0 || !strings.Contains(list.out, well.containerID) {
		t.Errorf("ps: got %+v", list)
	}
	both := h.crishim(t, again.endpoint()).run(t.Context(), "inspect", sick.containerID, well.containerID)
	if both.code != 1 || !strings.Contains(both.out, well.containerID) || !strings.Contains(both.err, "on fire") {
		t.Errorf("inspect: got status %d, %q", both.code, both.err)
	}
	k.gone(t, well)
	if err := sick.stop(t.Context(), k.serve); err == nil {
		t.Error("a pod whose container cannot be asked about was stopped")
	}
	k.proxy.Set(nil)
	k.gone(t, sick)
	again.stop()
	k.serve.stop()
}

// TestEngineSpeaksAnotherVersionOnEngine checks that serve renegotiates with an older or newer engine.
func TestEngineSpeaksAnotherVersionOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if _, err := h.engine.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	own := h.engine.ClientVersion()
	k := newKiller(t, h)
	p := k.running(t)
	for _, version := range []string{"1.40", own} {
		k.proxy.Down(true)
		k.proxy.Speak(version)
		k.proxy.Down(false)
		wait(t, func() error {
			// The image is unknown, so it cannot be cached and the engine must answer.
			_, err := k.serve.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "none/" + strings.ReplaceAll(version, ".", "-")}})
			if err == nil {
				_, err = k.serve.Version(t.Context(), &runtimeapi.VersionRequest{})
			}
			return err
		})
		k.truthful(t, p)
		other := k.running(t)
		k.gone(t, other)
	}
	k.gone(t, p)
	k.serve.stop()
}
