package cache

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/state"
)

// fixture is a cache that follows an in-memory engine with one container.
type fixture struct {
	*testing.T
	*Cache
	engine   *enginetest.Memory
	id       string
	followed chan error // result of Follow
	stop     context.CancelFunc
}

func follow(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, engine: enginetest.NewMemory(), followed: make(chan error, 1)}
	f.engine.AddImage("app:1")
	c, err := f.engine.ContainerCreate(t.Context(), &container.Config{Image: "app:1", Labels: map[string]string{state.LabelType: state.TypeContainer}}, &container.HostConfig{}, nil, nil, "one")
	if err != nil {
		t.Fatal(err)
	}
	f.id, f.Cache = c.ID, New(f.engine)
	var ctx context.Context
	ctx, f.stop = context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.followed <- f.Follow(ctx)
	}()
	t.Cleanup(func() { f.stop(); <-done })
	synctest.Wait()
	return f
}

// whole returns list options for all pod containers, in the given states or in any.
func whole(states ...string) container.ListOptions {
	args := filters.NewArgs(filters.Arg("label", state.LabelType+"="+state.TypeContainer))
	for _, s := range states {
		args.Add("status", s)
	}
	return container.ListOptions{All: true, Filters: args}
}

// state returns the state of the container in a list, or "", and whether the engine was asked.
func (f *fixture) state(o container.ListOptions) (state string, asked bool) {
	f.Helper()
	before := f.asked()
	list, err := f.ContainerList(f.T.Context(), o)
	if err != nil {
		f.Fatal(err)
	}
	if i := slices.IndexFunc(list, func(c container.Summary) bool { return c.ID == f.id }); i >= 0 {
		state = list[i].State
	}
	return state, f.asked() > before
}

func (f *fixture) asked() (n int) {
	for _, call := range f.engine.Calls() {
		if call == "ContainerList" {
			n++
		}
	}
	return n
}

func (f *fixture) want(when, state string, asked bool) {
	f.Helper()
	if got, gotAsked := f.state(whole()); got != state || gotAsked != asked {
		f.Errorf("%s: got %q, the engine asked: %v; want %q, %v", when, got, gotAsked, state, asked)
	}
}

func (f *fixture) start() {
	f.Helper()
	if err := f.engine.ContainerStart(f.T.Context(), f.id, container.StartOptions{}); err != nil {
		f.Fatal(err)
	}
	synctest.Wait()
}

func TestTheVersionOfAFollowedEngineIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		version := func() string {
			v, err := f.ServerVersion(t.Context())
			if err != nil {
				t.Error(err)
			}
			return v.Version
		}
		want := f.engine.Version.Version
		f.engine.Version.Version = "of the next engine"
		if got := version(); got != want || slices.Contains(f.engine.Calls(), "ServerVersion") {
			t.Errorf("got %q by %q, want %q without a call", got, f.engine.Calls(), want)
		}
		f.engine.BreakEvents(errors.New("restarted"))
		synctest.Wait()
		if got := version(); got != "of the next engine" {
			t.Errorf("after the engine's restart: got %q", got)
		}
	})
}

func TestListsAreKeptUntilTheyMayHaveChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		f.want("first", "created", true)
		f.want("again", "created", false)
		f.engine.Emit(events.Message{Type: events.ContainerEventType, Action: events.ActionExecStart + ": probe"})
		synctest.Wait()
		f.want("after a probe", "created", false)
		f.start()
		f.want("after an event", "running", true)
		f.want("again", "running", false)
		f.engine.MuteEvents(true)
		f.engine.Exit(f.id, 3)
		f.Invalidate()
		f.want("after a request that may have changed it", "exited", true)
		f.start()
		time.Sleep(maxAge)
		f.want("after an event was lost", "running", true)
	})
}

func TestOtherListsGoToTheEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		one := whole()
		one.Filters.Add("id", f.id)
		labelled := whole()
		labelled.Filters.Add("label", "a=b")
		for name, c := range map[string]struct {
			o    container.ListOptions
			kept bool
		}{
			"all": {whole(), true}, "in two states": {whole("running", "created"), true},
			"by id": {one, false}, "by a label": {labelled, false}, "all of the engine": {container.ListOptions{All: true}, false},
			"with sizes": {container.ListOptions{Filters: whole().Filters, Size: true}, false},
		} {
			f.state(c.o)
			if _, asked := f.state(c.o); asked == c.kept {
				t.Errorf("%s: kept: got %v, want %v", name, !asked, c.kept)
			}
		}
	})
}

func TestAListThatIsReadDuringAChangeIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		f.engine.Fail("ContainerList", func(context.Context) error {
			f.Invalidate()
			return nil
		})
		f.want("during a change", "created", true)
		f.engine.Fail("ContainerList", nil)
		f.want("after it", "created", true)
		f.want("again", "created", false)
	})
}

func TestNothingIsKeptWithoutTheEventStream(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fixture){
		"the stream breaks": func(f *fixture) { f.engine.BreakEvents(errors.New("restarted")) },
		"the shim ends":     func(f *fixture) { f.stop() },
		"no ping is answered": func(f *fixture) {
			f.engine.Fail("Ping", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			time.Sleep(pingInterval + pingTimeout)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := follow(t)
				f.want("first", "created", true)
				f.want("again", "created", false)
				end(f)
				synctest.Wait()
				if err := <-f.followed; err == nil {
					t.Error("Follow returned no error")
				}
				f.want("without a stream", "created", true)
				f.want("again", "created", true)
			})
		})
	}
}

func TestAnErrorIsAnAnswerToAPing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := follow(t)
		f.engine.Fail("Ping", func(context.Context) error { return errors.New("no") })
		time.Sleep(10 * pingInterval)
		if len(f.followed) > 0 {
			t.Errorf("got %v", <-f.followed)
		}
	})
}
