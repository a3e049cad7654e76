package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
)

func hang(ctx context.Context) { <-ctx.Done() }

func TestCallThatTakesTooLong(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint, Timeout: 200 * time.Millisecond})
	s.Before("ListContainers", hang)
	_, err := c.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if !strings.HasPrefix(err.Error(), "list containers: no answer from "+s.Endpoint+" after ") {
		t.Errorf("got %q", err)
	}
	if hintOf(err) != "--timeout waits longer" || status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got hint %q, code %s", hintOf(err), status.Code(err))
	}
	var e *client.Error
	if !errors.As(fmt.Errorf("stop web: %w", err), &e) || e.Op != "list containers" {
		t.Errorf("got %+v", e)
	}
}

func TestTimeoutNamesItsOwnFlag(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	s.Before("PullImage", hang)
	_, err := c.Image.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "x"}}, client.Timeout(100*time.Millisecond, "--pull-timeout"))
	if status.Code(err) != codes.DeadlineExceeded || hintOf(err) != "--pull-timeout waits longer" {
		t.Errorf("got %v, hint %q", err, hintOf(err))
	}
}

// limits makes one call of each kind and records the deadline that arrives at the server.
func limits(t *testing.T, o client.Options) map[string]time.Duration {
	t.Helper()
	s := stubcri.Start(t, stubcri.Options{})
	o.RuntimeEndpoint = s.Endpoint
	c := connect(t, o)
	var mu sync.Mutex
	got := map[string]time.Duration{}
	for _, m := range []string{"ListContainers", "StartContainer", "StopContainer", "RunPodSandbox", "PullImage"} {
		s.Before(m, func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			got[m] = 0
			if d, ok := ctx.Deadline(); ok {
				got[m] = time.Until(d)
			}
		})
	}
	ctx := t.Context()
	_, _ = c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	_, _ = c.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{})
	_, _ = c.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{Timeout: 3600})
	_, _ = c.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{})
	_, _ = c.Image.PullImage(ctx, &runtimeapi.PullImageRequest{})
	return got
}

func TestLimitsByKind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                           string
		o                              client.Options
		list, start, stop, run, pulled time.Duration
	}{
		{"by kind", client.Options{}, client.QueryLimit, client.ChangeLimit, client.ChangeLimit + time.Hour, client.PodLimit, 0},
		{"--timeout", client.Options{Timeout: 30 * time.Hour, QueryTimeout: time.Hour}, 30 * time.Hour, 30 * time.Hour, 31 * time.Hour, 30 * time.Hour, 0},
		{"config file", client.Options{QueryTimeout: 40 * time.Hour}, 40 * time.Hour, client.ChangeLimit, client.ChangeLimit + time.Hour, client.PodLimit, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := limits(t, tt.o)
			for method, want := range map[string]time.Duration{
				"ListContainers": tt.list, "StartContainer": tt.start, "StopContainer": tt.stop, "RunPodSandbox": tt.run, "PullImage": tt.pulled,
			} {
				// The deadline may have shrunk in transit, but cannot have grown.
				if d, ok := got[method]; !ok || d > want || want > 0 && d <= want/2 {
					t.Errorf("%s: got %s, want %s", method, d, want)
				}
			}
		})
	}
}

func TestCallersOwnDeadlineStands(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint, Timeout: time.Millisecond})
	var left time.Duration
	s.Before("Status", func(ctx context.Context) {
		if d, ok := ctx.Deadline(); ok {
			left = time.Until(d)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := c.Runtime.Status(ctx, &runtimeapi.StatusRequest{}); err != nil || left < time.Minute {
		t.Errorf("got %v with %s left", err, left)
	}
	c.LimitCalls(time.Hour)
	s.Before("ListContainers", hang)
	if _, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("with another limit than --timeout: got %v", err)
	}
}

func TestErrorsInWords(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	tests := []struct {
		name string
		err  error
		code codes.Code
		want string
	}{
		{"the runtime's own words", status.Error(codes.NotFound, "container is gone"), codes.NotFound, "container is gone"},
		{"wrapped on the way", status.Error(codes.Unknown, "sandbox: rpc error: code = Internal desc = cni: rpc error: code = X desc = no ips"), codes.Unknown, "sandbox: cni: no ips"},
		{"nothing said", status.Error(codes.Internal, ""), codes.Internal, "list containers: the runtime answered Internal without a reason"},
		{"not implemented", status.Error(codes.Unimplemented, "unknown method X"), codes.Unimplemented, "the runtime at " + s.Endpoint + " does not implement this call (list containers)"},
		{"not implemented by a generated server", status.Error(codes.Unimplemented, "method ListContainers not implemented"), codes.Unimplemented, "the runtime at " + s.Endpoint + " does not implement this call (list containers)"},
		{"not all of it implemented", status.Error(codes.Unimplemented, "the engine has no user namespace per pod"), codes.Unimplemented, "the engine has no user namespace per pod"},
		{"an engine that went away", status.Error(codes.Unavailable, "engine stopped"), codes.Unavailable, "list containers: " + s.Endpoint + " is not available: engine stopped"},
		{"a runtime that went away", status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /x.sock: connect: connection refused"`), codes.Unavailable, "list containers: " + s.Endpoint + " is not available: connection refused"},
		{"in the middle of a handshake", status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: read unix @->/x.sock: connection reset by peer"`), codes.Unavailable, "list containers: " + s.Endpoint + " is not available: connection reset by peer"},
		{"in the middle of an answer", status.Error(codes.Unavailable, "error reading from server: EOF"), codes.Unavailable, "list containers: " + s.Endpoint + " is not available: the connection has ended"},
		{"a runtime without its engine", status.Error(codes.Unavailable, "list containers: no engine"), codes.Unavailable, "list containers: " + s.Endpoint + " is not available: no engine"},
	}
	for _, tt := range tests {
		s.Fail("ListContainers", tt.err)
		_, err := c.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err == nil || err.Error() != tt.want || status.Code(err) != tt.code {
			t.Errorf("%s: got %v (%s), want %q (%s)", tt.name, err, status.Code(err), tt.want, tt.code)
		}
	}
}

func TestRuntimeThatDiesDuringACall(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	s.Before("ListPodSandbox", func(ctx context.Context) {
		go s.Stop()
		<-ctx.Done()
	})
	_, err := c.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "is not available") || hintOf(err) == "" {
		t.Errorf("got %v, hint %q", err, hintOf(err))
	}
}

func TestInterruptedCall(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	ctx, cancel := context.WithCancel(t.Context())
	s.Before("Status", func(ctx context.Context) {
		cancel()
		<-ctx.Done()
	})
	_, err := c.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if status.Code(err) != codes.Canceled || err.Error() != "ask for the runtime's status: interrupted" {
		t.Errorf("got %v", err)
	}
}

func TestDebugShowsCallsButNoSecrets(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	var mu sync.Mutex
	var lines []string
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint, Debug: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf(format, args...))
	}})
	for _, image := range []string{"private/x", "missing/y"} {
		_, _ = c.Image.PullImage(t.Context(), &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: image}, Auth: &runtimeapi.AuthConfig{Username: "joe", Password: "hunter2", Auth: "hunter3"},
		})
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(lines, "\n")
	if !strings.Contains(all, "/runtime.v1.ImageService/PullImage on "+s.Endpoint) || strings.Contains(all, "hunter") {
		t.Errorf("got %s", all)
	}
}

// many fills a runtime with pods whose list exceeds the size of a message.
func many(t *testing.T, o stubcri.Options) *stubcri.Server {
	t.Helper()
	o.MaxSend = 64 << 10
	s := stubcri.Start(t, o)
	for i := range 40 {
		pod := s.AddPod("default", fmt.Sprint("pod-", i), func(c *runtimeapi.PodSandboxConfig) {
			c.Annotations = map[string]string{"filler": strings.Repeat("x", 4<<10)}
		})
		s.AddContainer(pod, "c", func(c *runtimeapi.ContainerConfig) {
			c.Annotations = map[string]string{"filler": strings.Repeat("x", 4<<10)}
		})
	}
	return s
}

func TestListThatIsTooBigForOneMessage(t *testing.T) {
	t.Parallel()
	s := many(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	pods, err := c.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.GetItems()) != 40 {
		t.Errorf("got %d pods, %v", len(pods.GetItems()), err)
	}
	list, err := c.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) != 40 {
		t.Errorf("got %d containers, %v", len(list.GetContainers()), err)
	}
	got := strings.Join(s.Methods(), " ")
	if got != "Version ListPodSandbox StreamPodSandboxes ListContainers StreamContainers" {
		t.Errorf("got calls %s", got)
	}
	// The streaming call uses the same filter.
	id := pods.GetItems()[0].GetId()
	pods, err = c.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: id}})
	if err != nil || len(pods.GetItems()) != 1 {
		t.Errorf("filtered: got %d pods, %v", len(pods.GetItems()), err)
	}
}

func TestTooBigListWithoutPieces(t *testing.T) {
	t.Parallel()
	s := many(t, stubcri.Options{Unimplemented: []string{"StreamContainers"}})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	_, err := c.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if status.Code(err) != codes.ResourceExhausted || !strings.HasPrefix(err.Error(), "list containers: ") {
		t.Errorf("got %v", err)
	}
}

// An error of the streaming call is reported as an error of the list call.
func TestPiecesThatTakeTooLong(t *testing.T) {
	t.Parallel()
	s := many(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint, Timeout: time.Second})
	s.Before("StreamContainers", hang)
	_, err := c.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err == nil || !strings.HasPrefix(err.Error(), "list containers: no answer") || hintOf(err) != "--timeout waits longer" {
		t.Errorf("got %v, hint %q", err, hintOf(err))
	}
}

func TestListAboveSixteenMiB(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{Unimplemented: []string{"StreamPodSandboxes"}})
	for i := range 20 {
		s.AddPod("default", fmt.Sprint("pod-", i), func(c *runtimeapi.PodSandboxConfig) {
			c.Annotations = map[string]string{"filler": strings.Repeat("x", 1<<20)}
		})
	}
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	pods, err := c.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.GetItems()) != 20 {
		t.Errorf("got %d pods, %v", len(pods.GetItems()), err)
	}
}

func TestRegistryThatDoesNotAnswerIsNoRuntimeThatWentAway(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	s.Fail("PullImage", status.Error(codes.Unavailable, "RegistryUnavailable: dial tcp: no such host"))
	_, err := c.Image.PullImage(t.Context(), &runtimeapi.PullImageRequest{})
	if want := "the registry cannot be reached: dial tcp: no such host"; err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
}
