package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/state"
)

const patience = time.Minute

// fixture is a cache that follows an engine in memory.
type fixture struct {
	*testing.T
	*Cache
	engine *enginetest.Memory
	image  string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, engine: enginetest.NewMemory()}
	f.image = f.engine.AddImage("app:1")
	f.Cache = New(f.engine, nil)
	return f
}

// follow keeps following until the test ends, as the shim's watch does.
func (f *fixture) follow() {
	f.Helper()
	ctx, cancel := context.WithCancel(f.T.Context())
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			_ = f.Follow(ctx)
		}
	})
	f.Cleanup(func() {
		cancel()
		following.Wait()
	})
	f.settle()
}

// settle waits until everything is known.
func (f *fixture) settle() {
	f.Helper()
	for end := time.Now().Add(patience); !f.settled(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.Fatal("the cache does not settle")
		}
	}
}

func (f *fixture) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase != live || len(f.stale) > 0 || !f.images.fresh || !f.about.fresh {
		return false
	}
	for _, e := range f.containers {
		if _, known := f.images.details[e.detail.Image]; !known {
			return false
		}
	}
	return true
}

func (f *fixture) make(name string) string {
	f.Helper()
	c, err := f.engine.ContainerCreate(f.T.Context(), config(), &container.HostConfig{}, nil, nil, name)
	if err != nil {
		f.Fatal(err)
	}
	return c.ID
}

func config() *container.Config {
	return &container.Config{Image: "app:1", Labels: map[string]string{state.LabelType: state.TypeContainer, "a": "b"}}
}

// reader is what both the engine and its cache answer.
type reader interface {
	ServerVersion(ctx context.Context) (types.Version, error)
	Info(ctx context.Context) (system.Info, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error)
	ImageInspect(ctx context.Context, ref string, o ...docker.ImageInspectOption) (image.InspectResponse, error)
}

// view is what a reader sees: every container with its state, by list and by
// inspection, and the images.
func (f *fixture) view(ctx context.Context, e reader) string {
	f.Helper()
	list, err := e.ContainerList(ctx, podContainers())
	if err != nil {
		f.Fatal(err)
	}
	var lines []string
	for _, s := range list {
		d, err := e.ContainerInspect(ctx, s.ID)
		if err != nil {
			f.Fatal(err)
		}
		i, err := e.ImageInspect(ctx, s.ImageID)
		if err != nil && !errdefs.IsNotFound(err) {
			f.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(s.Names, " ", s.State, " ", s.Image, " ", s.Created, " ", d.Name, " ", d.State.Status, " ", d.State.ExitCode,
			" ", d.HostConfig.Memory, " ", i.RepoTags, " ", s.NetworkSettings.Networks["bridge"]))
	}
	images, err := e.ImageList(ctx, image.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	for _, i := range images {
		lines = append(lines, fmt.Sprint(i.ID, i.RepoTags))
	}
	info, err := e.Info(ctx)
	if err != nil {
		f.Fatal(err)
	}
	version, err := e.ServerVersion(ctx)
	if err != nil {
		f.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(append(lines, info.CgroupDriver, version.Version), "\n")
}

// truth compares what the cache tells at this moment with the engine.
func (f *fixture) truth(when string) {
	f.Helper()
	if diff := cmp.Diff(f.view(f.T.Context(), f.engine), f.view(Reading(f.T.Context()), f.Cache)); diff != "" {
		f.Errorf("%s: the cache tells + instead of -:\n%s", when, diff)
	}
}

// free makes sure that reading costs no call.
func (f *fixture) free() {
	f.Helper()
	var mu sync.Mutex
	var cost []string
	f.engine.OnCall(func(ctx context.Context, method string) {
		if fromMemory(ctx) { // the cache's own reader may still be at work
			mu.Lock()
			defer mu.Unlock()
			cost = append(cost, method)
		}
	})
	f.view(Reading(f.T.Context()), f.Cache)
	f.engine.OnCall(nil)
	if len(cost) > 0 {
		f.Errorf("reading cost the calls %v", cost)
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func TestReadingIsFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.must(f.engine.ContainerStart(t.Context(), f.make("one"), container.StartOptions{}))
	f.make("two")
	f.follow()
	f.free()
	f.truth("at the beginning")

	before := len(f.engine.Calls())
	f.view(t.Context(), f.Cache)
	if len(f.engine.Calls()) == before {
		t.Error("a call that did not ask for it was answered from memory")
	}
}

func TestNothingIsToldBeforeItIsKnown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make("one")
	before := len(f.engine.Calls())
	f.truth("without a stream")
	if calls := len(f.engine.Calls()) - before; calls != 2*6 {
		t.Errorf("got %d calls, want that all go to the engine", calls)
	}
	if _, ok := f.AsOf(); ok {
		t.Error("a cache that knows nothing says as of when")
	}
}

// An own change is seen by the next reader, whenever its event comes: here it
// never does.
// TestWhatTheEngineSaysIsSeenAtOnce: who looks past the cache and finds that
// something is gone or has ended may act on it before the event is there, and
// whoever asks next must not be told otherwise.
func TestWhatTheEngineSaysIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ended, gone := f.make("ended"), f.make("gone")
	ctx := t.Context()
	f.must(f.engine.ContainerStart(ctx, ended, container.StartOptions{}))
	unused := f.engine.AddImage("unused:1")
	f.follow()
	f.view(Reading(ctx), f.Cache)
	f.engine.MuteEvents(true)
	f.engine.Exit(ended, 3)
	f.must(f.engine.ContainerRemove(ctx, gone, container.RemoveOptions{}))
	_, err := f.engine.ImageRemove(ctx, unused, image.RemoveOptions{})
	f.must(err)

	if c, err := f.ContainerInspect(ctx, ended); err != nil || c.State.Running {
		t.Errorf("got %v, %v", c.State, err)
	}
	if _, err := f.ContainerInspect(ctx, gone); !errdefs.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
	if _, err := f.ImageInspect(ctx, unused); !errdefs.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
	f.truth("after a look past the cache")
	if _, err := f.ImageInspect(Reading(ctx), unused); !errdefs.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestOwnChangesAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.make("other")
	f.follow()
	f.engine.MuteEvents(true)
	ctx := t.Context()

	made, err := f.ContainerCreate(ctx, config(), &container.HostConfig{}, nil, nil, "own")
	f.must(err)
	f.truth("create")
	f.must(f.ContainerStart(ctx, made.ID, container.StartOptions{}))
	f.truth("start")
	_, err = f.ContainerUpdate(ctx, made.ID, container.UpdateConfig{Resources: container.Resources{Memory: 1 << 20}})
	f.must(err)
	f.truth("update")
	f.must(f.ContainerStop(ctx, made.ID, container.StopOptions{}))
	f.truth("stop")
	f.must(f.ContainerRemove(ctx, made.ID, container.RemoveOptions{}))
	f.truth("remove")
	f.must(f.ContainerStart(ctx, other[:12], container.StartOptions{}))
	f.truth("start by a part of the id")
	f.must(f.ContainerKill(ctx, other, "KILL"))
	f.truth("kill")

	body, err := f.ImagePull(ctx, "fresh:1", image.PullOptions{})
	f.must(err)
	f.must(body.Close())
	f.truth("pull")
	_, err = f.ImageRemove(ctx, "fresh:1", image.RemoveOptions{})
	f.must(err)
	f.truth("remove an image")
	f.settle()
	f.free()
}

func TestAFailedChangeIsReadBackToo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.make("own")
	f.follow()
	f.engine.MuteEvents(true)
	// The engine does it and the answer is lost.
	f.engine.Fail("ContainerStart", func(ctx context.Context) error {
		f.engine.Fail("ContainerStart", nil)
		return errors.Join(f.engine.ContainerStart(ctx, id, container.StartOptions{}), errors.New("connection reset"))
	})
	if err := f.ContainerStart(t.Context(), id, container.StartOptions{}); err == nil {
		t.Fatal("got no error")
	}
	f.truth("after a lost answer")
}

func TestWhatOthersDoIsHeard(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.make("a"), f.make("b")
	f.follow()
	ctx := t.Context()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"start", func() error { return f.engine.ContainerStart(ctx, a, container.StartOptions{}) }},
		{"exit", func() error { f.engine.Exit(a, 3); return nil }},
		{"rename", func() error { return f.engine.ContainerRename(ctx, b, "c") }},
		{"network", func() error { f.engine.Connect(b, "10.0.0.9"); return nil }},
		{"create", func() error { f.make("new"); return nil }},
		{"remove", func() error { return f.engine.ContainerRemove(ctx, a, container.RemoveOptions{}) }},
		{"tag", func() error { return f.engine.ImageTag(ctx, f.image, "app:2") }},
		{"the tag moves", func() error { f.engine.AddImage("app:1"); return nil }},
		{"untag", func() error { _, err := f.engine.ImageRemove(ctx, f.image, image.RemoveOptions{}); return err }},
	} {
		before := f.generation()
		f.must(step.do())
		f.receivedSince(before, step.what)
		f.settle()
		f.truth(step.what)
		f.free()
	}
}

func (f *fixture) generation() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clock
}

func (f *fixture) receivedSince(before uint64, what string) {
	f.Helper()
	for end := time.Now().Add(patience); f.generation() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("%s: nothing was received", what)
		}
	}
}

// receivedAll waits until every event so far was received, and what it invalidated read.
func (f *fixture) receivedAll() {
	f.Helper()
	at := time.Now().UnixNano()
	f.engine.Emit(events.Message{Type: events.ContainerEventType, Action: events.ActionTop, TimeNano: at})
	f.received(at)
	f.settle()
}

// received waits for the event of a time.
func (f *fixture) received(at int64) {
	f.Helper()
	test.Until(f, "the last event", func() bool {
		asOf, live := f.AsOf()
		return live && asOf >= at
	})
}

func TestProbesAreNoReasonToReadAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.make("a")
	f.follow()
	at := time.Now().UnixNano()
	f.engine.Emit(events.Message{
		Type: events.ContainerEventType, Action: "exec_create: sh -c true", TimeNano: at,
		Actor: events.Actor{ID: id, Attributes: config().Labels},
	})
	f.received(at)
	f.free()
}

// An answer that was on its way while the container changed must not be kept.
func TestAnOldAnswerIsNotKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.make("a")
	f.follow()
	f.engine.MuteEvents(true)
	looked, go_ := make(chan struct{}), make(chan struct{})
	slow := &slowInspect{Memory: f.engine, looked: looked, release: go_}
	f.Cache.engine = slow
	f.mu.Lock()
	f.invalidate(id)
	f.mu.Unlock()
	var reader sync.WaitGroup
	reader.Go(func() { f.must(f.refresh(t.Context(), id)) }) // sees the container before it starts
	<-looked
	slow.quick()
	f.must(f.ContainerStart(t.Context(), id, container.StartOptions{}))
	close(go_)
	reader.Wait()
	f.truth("after an answer that came late")
}

// slowInspect holds the first inspection's answer back.
type slowInspect struct {
	*enginetest.Memory
	looked, release chan struct{}
	mu              sync.Mutex
	fast            bool
}

func (s *slowInspect) quick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fast = true
}

func (s *slowInspect) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	d, err := s.Memory.ContainerInspect(ctx, id)
	s.mu.Lock()
	fast := s.fast
	s.mu.Unlock()
	if !fast {
		close(s.looked)
		<-s.release
	}
	return d, err
}

func TestABrokenStreamEndsTheCache(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.make("a")
	f.follow()
	away := errors.New("the engine is away")
	f.engine.Fail("Events", func(context.Context) error { return away })
	f.engine.BreakEvents(away)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, ok := f.AsOf(); !ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the cache still answers")
		}
	}
	f.must(f.engine.ContainerStart(t.Context(), id, container.StartOptions{}))
	f.truth("without a stream")
	f.must(f.ContainerStop(t.Context(), id, container.StopOptions{}))
	f.truth("an own change without a stream")
	f.engine.Fail("Events", nil)
	f.settle()
	f.truth("after the stream came back")
	f.free()
}

func TestWhatNoEventToldIsFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.make("a"), f.make("b")
	f.audit = 5 * time.Millisecond
	f.follow()
	f.engine.MuteEvents(true)
	f.must(f.engine.ContainerStart(t.Context(), a, container.StartOptions{}))
	f.must(f.engine.ContainerRemove(t.Context(), b, container.RemoveOptions{}))
	f.make("c")
	f.engine.AddImage("other:1")
	want := f.view(t.Context(), f.engine)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got := f.view(Reading(t.Context()), f.Cache)
		if got == want {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("never found (-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}

// TestAnEngineThatHangsIsNotSpokenFor: its stream of events stays open and says nothing.
func TestAnEngineThatHangsIsNotSpokenFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.heartbeatPause, f.heartbeatTime = time.Millisecond, 10*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Follow(ctx) }()
	f.settle()
	f.engine.Fail("Ping", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	select {
	case err := <-ended:
		if !errors.Is(err, errSilent) {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the cache still answers")
	}
	if _, ok := f.AsOf(); ok {
		t.Error("the cache still answers")
	}
}

func TestAnEngineThatDoesNotAnswerIsNotSpokenFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make("a")
	f.audit = 5 * time.Millisecond
	f.follow()
	f.engine.Fail("ImageList", func(context.Context) error { return errors.New("no answer") })
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, ok := f.AsOf(); !ok {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the cache still answers")
		}
	}
}

// A container that the engine is in trouble with costs its readers a call, and
// nobody else.
func TestTroubleWithOneContainer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	good, bad := f.make("good"), f.make("bad")
	f.Cache.engine = &troubled{f.engine, bad}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { _ = f.Follow(ctx) })
	defer following.Wait()
	defer cancel()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, ok := f.AsOf(); ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the cache never answers")
		}
	}
	if _, ok := f.container(good); !ok {
		t.Error("the other container is not known")
	}
	if _, err := f.ContainerInspect(Reading(t.Context()), bad); !errdefs.IsInternal(err) {
		t.Errorf("got %v, want the engine's own error", err)
	}
	list, err := f.ContainerList(Reading(t.Context()), podContainers())
	if err != nil || len(list) != 2 {
		t.Errorf("got %d containers and %v, want both", len(list), err)
	}
}

type troubled struct {
	*enginetest.Memory
	with string
}

func (e *troubled) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	if id == e.with {
		return container.InspectResponse{}, errdefs.ErrInternal
	}
	return e.Memory.ContainerInspect(ctx, id)
}

func TestFiltersAreTheEngines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.make("a")
	f.must(f.engine.ContainerStart(t.Context(), a, container.StartOptions{}))
	f.must(f.engine.ContainerStart(t.Context(), f.make("b"), container.StartOptions{}))
	f.make("c")
	f.follow()
	ours := filters.Arg("label", state.LabelType+"="+state.TypeContainer)
	for name, o := range map[string]container.ListOptions{
		"running only":   {Filters: filters.NewArgs(ours)},
		"all":            {All: true, Filters: filters.NewArgs(ours)},
		"id":             {All: true, Filters: filters.NewArgs(ours, filters.Arg("id", a[:8]))},
		"another label":  {All: true, Filters: filters.NewArgs(ours, filters.Arg("label", "a=c"))},
		"a label's key":  {All: true, Filters: filters.NewArgs(ours, filters.Arg("label", "a"))},
		"status":         {Filters: filters.NewArgs(ours, filters.Arg("status", "created"), filters.Arg("status", "exited"))},
		"sandboxes only": {All: true, Filters: filters.NewArgs(filters.Arg("label", state.LabelType+"="+state.TypeSandbox))},
	} {
		names := func(ctx context.Context) (out []string) {
			list, err := f.ContainerList(ctx, o)
			f.must(err)
			for _, s := range list {
				out = append(out, s.Names[0])
			}
			slices.Sort(out)
			return out
		}
		before := len(f.engine.Calls())
		got := names(Reading(t.Context()))
		if len(f.engine.Calls()) != before {
			t.Errorf("%s: the engine was asked", name)
		}
		if diff := cmp.Diff(names(t.Context()), got); diff != "" {
			t.Errorf("%s: got + instead of -:\n%s", name, diff)
		}
	}
	before := len(f.engine.Calls())
	if _, err := f.ContainerList(Reading(t.Context()), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "a"))}); err != nil {
		t.Fatal(err)
	}
	if len(f.engine.Calls()) == before {
		t.Error("a filter that the cache does not know was not left to the engine")
	}
}

// Many changes and readers at once, own ones and others': in the end, and after
// each own change, the cache tells what the engine does.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.follow()
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for round := range 10 {
				made, err := f.ContainerCreate(t.Context(), config(), &container.HostConfig{}, nil, nil, fmt.Sprintf("c-%d-%d", n, round))
				f.must(err)
				f.sees(made.ID, "created")
				f.must(f.ContainerStart(t.Context(), made.ID, container.StartOptions{}))
				f.sees(made.ID, "running")
				if round%2 == 0 {
					f.engine.Exit(made.ID, 1) // behind its back
				}
				f.must(f.ContainerStop(t.Context(), made.ID, container.StopOptions{}))
				f.sees(made.ID, "exited")
				if round%3 == 0 {
					continue
				}
				f.must(f.ContainerRemove(t.Context(), made.ID, container.RemoveOptions{}))
				f.sees(made.ID, "")
			}
		})
	}
	group.Wait()
	f.receivedAll()
	f.truth("at the end")
	f.free()
}

// sees looks for one container in a list.
func (f *fixture) sees(id, want string) {
	list, err := f.ContainerList(Reading(f.T.Context()), podContainers())
	if err != nil {
		f.Error(err)
	}
	got := ""
	for _, s := range list {
		if s.ID == id {
			got = s.State
		}
	}
	if got != want {
		f.Errorf("after an own change: got %q, want %q", got, want)
	}
}
