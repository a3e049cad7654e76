package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/state"
)

// patience allows for slow machines.
const patience = time.Minute

// fromMemory implements the statuses with an in-memory engine.
type fromMemory struct{ *enginetest.Memory }

func (m fromMemory) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	c, err := m.ContainerInspect(ctx, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	status := &runtimeapi.PodSandboxStatus{Id: c.ID, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
	if c.State.Running {
		status.State = runtimeapi.PodSandboxState_SANDBOX_READY
		status.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: "192.0.2.1"}
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: status}, nil
}

func (m fromMemory) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := m.ContainerInspect(ctx, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: c.ID}}, nil
}

func (fromMemory) AwaitLog(context.Context, string) {}

type stream struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan *runtimeapi.ContainerEventResponse
}

func (s stream) Context() context.Context { return s.ctx }

func (s stream) Send(e *runtimeapi.ContainerEventResponse) error {
	s.sent <- e
	return nil
}

type test struct {
	*testing.T
	engine *enginetest.Memory
	stream stream
}

// listen starts a stream with an in-memory engine. It ends with the test.
func listen(t *testing.T, engine *enginetest.Memory) test {
	t.Helper()
	return listenTo(t, engine, engine)
}

// listenTo is listen with a front for the in-memory engine.
func listenTo(t *testing.T, front Engine, engine *enginetest.Memory) test {
	t.Helper()
	return listenWith(t, front, fromMemory{engine}, engine)
}

func listenWith(t *testing.T, front Engine, statuses Statuses, engine *enginetest.Memory) test {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := New(front, statuses, slog.New(slog.DiscardHandler))
	s.retry = time.Millisecond
	tt := test{t, engine, stream{ctx: ctx, sent: make(chan *runtimeapi.ContainerEventResponse, 100)}}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.GetContainerEvents(&runtimeapi.GetEventsRequest{}, tt.stream); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want cancelled", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	tt.waitForListener()
	return tt
}

// waitForListener waits until the stream is subscribed, so that later events are new.
func (t test) waitForListener() {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if t.engine.Listeners() == 1 {
			return
		}
	}
	t.Fatal("nobody listens to the engine")
}

// expect reads events and compares them with descriptions, "kind id pod-state containers".
func (t test) expect(want ...string) {
	t.Helper()
	var got []string
	for range want {
		select {
		case e := <-t.stream.sent:
			got = append(got, fmt.Sprintf("%s %s %s %d", e.GetContainerEventType(), e.GetContainerId()[:4], e.GetPodSandboxStatus().GetState(), len(e.GetContainersStatuses())))
		case <-time.After(patience):
			t.Fatalf("got only %v", got)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func create(t *testing.T, engine *enginetest.Memory, name string, labels map[string]string) string {
	t.Helper()
	c, err := engine.ContainerCreate(t.Context(), &container.Config{Image: engine.AddImage("x"), Labels: labels}, &container.HostConfig{}, nil, nil, "k8s_POD_"+name)
	if err != nil {
		t.Fatal(err)
	}
	return c.ID
}

func sandboxLabels() map[string]string { return map[string]string{state.LabelType: state.TypeSandbox} }

func memberLabels(sandbox string) map[string]string {
	return map[string]string{state.LabelType: state.TypeContainer, state.LabelSandboxID: sandbox}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheLifeOfAPod(t *testing.T) {
	t.Parallel()
	tt := listen(t, enginetest.NewMemory())
	box := create(t, tt.engine, "box", sandboxLabels())
	must(t, tt.engine.ContainerStart(t.Context(), box, container.StartOptions{}))
	tt.expect("CONTAINER_CREATED_EVENT "+box[:4]+" SANDBOX_READY 0", "CONTAINER_STARTED_EVENT "+box[:4]+" SANDBOX_READY 0")
	app := create(t, tt.engine, "app", memberLabels(box))
	tt.expect("CONTAINER_CREATED_EVENT " + app[:4] + " SANDBOX_READY 1")
	must(t, tt.engine.ContainerStart(t.Context(), app, container.StartOptions{}))
	tt.expect("CONTAINER_STARTED_EVENT " + app[:4] + " SANDBOX_READY 1")
	tt.engine.Exit(app, 1)
	tt.expect("CONTAINER_STOPPED_EVENT " + app[:4] + " SANDBOX_READY 1")
	must(t, tt.engine.ContainerRemove(t.Context(), app, container.RemoveOptions{}))
	tt.expect("CONTAINER_DELETED_EVENT " + app[:4] + " SANDBOX_READY 0")
	must(t, tt.engine.ContainerStop(t.Context(), box, container.StopOptions{}))
	tt.expect("CONTAINER_STOPPED_EVENT " + box[:4] + " SANDBOX_NOTREADY 0")
	must(t, tt.engine.ContainerRemove(t.Context(), box, container.RemoveOptions{}))
	tt.expect("CONTAINER_DELETED_EVENT " + box[:4] + " SANDBOX_NOTREADY 0")
}

// incomplete has a container whose log is incomplete until the channel is closed.
type incomplete struct {
	fromMemory
	id       string
	complete chan struct{}
}

func (s incomplete) AwaitLog(ctx context.Context, id string) {
	if id != s.id {
		return
	}
	select {
	case <-s.complete:
	case <-ctx.Done():
	}
}

// TestAnIncompleteLogDelaysItsPodOnly checks that events of other pods are not delayed and that the pod's own events
// keep their order, even if the engine's stream breaks meanwhile.
func TestAnIncompleteLogDelaysItsPodOnly(t *testing.T) {
	t.Parallel()
	engine := enginetest.NewMemory()
	pods, apps := make([]string, 2), make([]string, 2)
	for i := range pods {
		pods[i] = create(t, engine, fmt.Sprint("pod", i), sandboxLabels())
		apps[i] = create(t, engine, fmt.Sprint("app", i), memberLabels(pods[i]))
		must(t, engine.ContainerStart(t.Context(), pods[i], container.StartOptions{}))
		must(t, engine.ContainerStart(t.Context(), apps[i], container.StartOptions{}))
	}
	statuses := incomplete{fromMemory{engine}, apps[0], make(chan struct{})}
	tt := listenWith(t, engine, statuses, engine)
	engine.Exit(apps[0], 1)
	engine.Exit(apps[1], 1)
	tt.expect("CONTAINER_STOPPED_EVENT " + apps[1][:4] + " SANDBOX_READY 1")
	engine.BreakEvents(errors.New("the engine is away"))
	engine.Exit(pods[0], 0)
	engine.Exit(pods[1], 0)
	tt.expect("CONTAINER_STOPPED_EVENT " + pods[1][:4] + " SANDBOX_NOTREADY 1")
	close(statuses.complete)
	tt.expect("CONTAINER_STOPPED_EVENT "+apps[0][:4]+" SANDBOX_NOTREADY 1", "CONTAINER_STOPPED_EVENT "+pods[0][:4]+" SANDBOX_NOTREADY 1")
}

// connecting has a sandbox that gets its address when the channel is closed.
type connecting struct {
	fromMemory
	id        string
	connected chan struct{}
}

func (s connecting) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	resp, err := s.fromMemory.PodSandboxStatus(ctx, r)
	select {
	case <-s.connected:
	default:
		if r.GetPodSandboxId() == s.id {
			resp.GetStatus().Network = nil
		}
	}
	return resp, err
}

// TestAPodWithoutAddressDelaysItsEventsOnly checks that the start event of a sandbox waits for its address, without
// delaying other pods.
func TestAPodWithoutAddressDelaysItsEventsOnly(t *testing.T) {
	t.Parallel()
	engine := enginetest.NewMemory()
	slow, quick := create(t, engine, "slow", sandboxLabels()), create(t, engine, "quick", sandboxLabels())
	statuses := connecting{fromMemory{engine}, slow, make(chan struct{})}
	tt := listenWith(t, engine, statuses, engine)
	for _, id := range []string{slow, quick} {
		must(t, engine.ContainerStart(t.Context(), id, container.StartOptions{}))
	}
	tt.expect("CONTAINER_CREATED_EVENT "+quick[:4]+" SANDBOX_READY 0", "CONTAINER_STARTED_EVENT "+quick[:4]+" SANDBOX_READY 0")
	close(statuses.connected)
	for range 2 {
		select {
		case e := <-tt.stream.sent:
			if e.GetContainerId() != slow || e.GetPodSandboxStatus().GetNetwork().GetIp() == "" {
				t.Errorf("got %v", e)
			}
		case <-time.After(patience):
			t.Fatal("the start of the slow pod is not told")
		}
	}
}

func TestWhatWasMissedIsTold(t *testing.T) {
	t.Parallel()
	engine := enginetest.NewMemory()
	dying := create(t, engine, "dying", sandboxLabels())
	must(t, engine.ContainerStart(t.Context(), dying, container.StartOptions{}))
	going := create(t, engine, "going", sandboxLabels())
	must(t, engine.ContainerStart(t.Context(), going, container.StartOptions{}))
	tt := listen(t, engine)

	away := errors.New("the engine is away")
	engine.Fail("Events", func(context.Context) error { return away })
	engine.BreakEvents(away)
	engine.Exit(dying, 0)
	must(t, engine.ContainerRemove(t.Context(), going, container.RemoveOptions{Force: true}))
	coming := create(t, engine, "coming", sandboxLabels())
	must(t, engine.ContainerStart(t.Context(), coming, container.StartOptions{}))
	engine.Fail("Events", nil)

	got := map[string]int{}
	for range 5 {
		select {
		case e := <-tt.stream.sent:
			got[fmt.Sprint(e.GetContainerId()[:4], " ", e.GetContainerEventType())]++
		case <-time.After(patience):
			t.Fatalf("got only %v", got)
		}
	}
	want := map[string]int{
		dying[:4] + " CONTAINER_STOPPED_EVENT": 1, going[:4] + " CONTAINER_STOPPED_EVENT": 1, going[:4] + " CONTAINER_DELETED_EVENT": 1,
		coming[:4] + " CONTAINER_CREATED_EVENT": 1, coming[:4] + " CONTAINER_STARTED_EVENT": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func TestStrangersAndHalfMadePodsAreNotTold(t *testing.T) {
	t.Parallel()
	tt := listen(t, enginetest.NewMemory())
	stranger := create(t, tt.engine, "stranger", nil)
	must(t, tt.engine.ContainerStart(t.Context(), stranger, container.StartOptions{}))
	half := create(t, tt.engine, "half", sandboxLabels())
	must(t, tt.engine.ContainerRemove(t.Context(), half, container.RemoveOptions{}))
	box := create(t, tt.engine, "box", sandboxLabels())
	must(t, tt.engine.ContainerStart(t.Context(), box, container.StartOptions{}))
	tt.expect("CONTAINER_CREATED_EVENT "+box[:4]+" SANDBOX_READY 0", "CONTAINER_STARTED_EVENT "+box[:4]+" SANDBOX_READY 0")
}

// late is an engine that responds to a subscription long before it starts to listen. Events in between are only
// available with since.
type late struct {
	*enginetest.Memory
	lists  chan struct{} // receives a value for each list
	happen func() events.Message
}

func (e late) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	defer func() { e.lists <- struct{}{} }()
	return e.Memory.ContainerList(ctx, o)
}

func (e late) Events(ctx context.Context, o events.ListOptions) (<-chan events.Message, <-chan error) {
	messages, errs := make(chan events.Message, 1), make(chan error)
	<-e.lists // wait for the previous list
	go func() {
		<-e.lists
		missed := e.happen()
		_, _ = e.Memory.Events(ctx, o)
		if o.Since != "" {
			messages <- missed
		}
	}()
	return messages, errs
}

func TestWhatHappensBeforeTheEngineListensIsTold(t *testing.T) {
	t.Parallel()
	engine := enginetest.NewMemory()
	box := create(t, engine, "box", sandboxLabels())
	tt := listenTo(t, late{engine, make(chan struct{}, 9), func() events.Message {
		must(t, engine.ContainerStart(t.Context(), box, container.StartOptions{}))
		return events.Message{
			Type: events.ContainerEventType, Action: events.ActionStart, TimeNano: time.Now().UnixNano(),
			Actor: events.Actor{ID: box, Attributes: sandboxLabels()},
		}
	}}, engine)
	tt.expect("CONTAINER_CREATED_EVENT "+box[:4]+" SANDBOX_READY 0", "CONTAINER_STARTED_EVENT "+box[:4]+" SANDBOX_READY 0")
}

func TestCloseEndsTheStream(t *testing.T) {
	t.Parallel()
	engine := enginetest.NewMemory()
	s := New(engine, fromMemory{engine}, slog.New(slog.DiscardHandler))
	s.Close()
	if err := s.GetContainerEvents(nil, stream{ctx: t.Context()}); err != nil {
		t.Errorf("got %v, want the stream ended", err)
	}
}
