package convert

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainerState(t *testing.T) {
	t.Parallel()
	for word, want := range map[container.ContainerState]runtimeapi.ContainerState{
		"":           runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		"newfangled": runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		"created":    runtimeapi.ContainerState_CONTAINER_CREATED,
		"running":    runtimeapi.ContainerState_CONTAINER_RUNNING,
		"paused":     runtimeapi.ContainerState_CONTAINER_RUNNING,
		"restarting": runtimeapi.ContainerState_CONTAINER_RUNNING,
		"exited":     runtimeapi.ContainerState_CONTAINER_EXITED,
		"removing":   runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		"dead":       runtimeapi.ContainerState_CONTAINER_UNKNOWN,
	} {
		if got := ContainerState(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

// TestEngineStates checks that the engine knows all words of a filter, because it rejects unknown ones, and that each
// state includes its containers.
func TestEngineStates(t *testing.T) {
	t.Parallel()
	known := []string{"created", "restarting", "running", "removing", "paused", "exited", "dead"}
	for value, name := range runtimeapi.ContainerState_name {
		words := EngineStates(runtimeapi.ContainerState(value))
		if len(words) == 0 {
			t.Errorf("%s: no word", name)
		}
		for _, word := range words {
			if !cmp.Equal(true, contains(known, word)) {
				t.Errorf("%s: the engine does not know %q", name, word)
			}
		}
	}
	for _, word := range known {
		if !contains(EngineStates(ContainerState(container.ContainerState(word))), word) {
			t.Errorf("%s: not among the words of its own state", word)
		}
	}
	if got := EngineStates(99); got != nil {
		t.Errorf("unknown state: got %q", got)
	}
}

func contains(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

func TestRun(t *testing.T) {
	t.Parallel()
	const (
		created  = "2026-01-02T03:04:05.000000001Z"
		started  = "2026-01-02T03:04:06Z"
		finished = "2026-01-02T03:04:07.5Z"
		never    = "0001-01-01T00:00:00Z"
	)
	at := func(text string) int64 {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.UnixNano()
	}
	for name, tc := range map[string]struct {
		state container.State
		want  RunState
	}{
		"nothing but times that are not": {
			container.State{StartedAt: never, FinishedAt: never},
			RunState{State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: at(created)},
		},
		"created": {
			container.State{Status: "created", StartedAt: never, FinishedAt: never},
			RunState{State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: at(created)},
		},
		"running": {
			container.State{Status: "running", Running: true, StartedAt: started, FinishedAt: never},
			RunState{State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: at(created), StartedAt: at(started)},
		},
		"paused": {
			container.State{Status: "paused", Running: true, Paused: true, StartedAt: started, FinishedAt: never},
			RunState{State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: at(created), StartedAt: at(started)},
		},
		"ended well": {
			container.State{Status: "exited", StartedAt: started, FinishedAt: finished},
			RunState{State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: at(created), StartedAt: at(started), FinishedAt: at(finished), Reason: reasonCompleted},
		},
		"ended badly": {
			container.State{Status: "exited", StartedAt: started, FinishedAt: finished, ExitCode: 3, Error: "why"},
			RunState{State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: at(created), StartedAt: at(started), FinishedAt: at(finished), ExitCode: 3, Reason: reasonError, Description: "why"},
		},
		"out of memory": {
			container.State{Status: "exited", StartedAt: started, FinishedAt: finished, ExitCode: 137, OOMKilled: true},
			RunState{State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: at(created), StartedAt: at(started), FinishedAt: at(finished), ExitCode: 137, Reason: reasonOOMKilled},
		},
		"a start that failed": {
			container.State{Status: "created", StartedAt: never, FinishedAt: never, ExitCode: 127, Error: "no such command"},
			RunState{State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: at(created), StartedAt: at(created), FinishedAt: at(created), ExitCode: 127, Reason: reasonCannotRun, Description: "no such command"},
		},
		"dead": {
			container.State{Status: "dead", StartedAt: never, FinishedAt: never},
			RunState{State: runtimeapi.ContainerState_CONTAINER_UNKNOWN, CreatedAt: at(created)},
		},
	} {
		got, err := Run(created, &tc.state)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := Run(created, nil); err == nil {
		t.Error("no state: got no error")
	}
	for _, s := range []container.State{{StartedAt: "soon"}, {FinishedAt: "later"}} {
		if _, err := Run(created, &s); err == nil {
			t.Errorf("%v: got no error", s)
		}
	}
}

func FuzzTime(f *testing.F) {
	for _, n := range []int64{-1, 0, 1, 1767323045000000001} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		got, err := UnixNano(time.Unix(0, n).UTC().Format(time.RFC3339Nano))
		if err != nil || got != max(n, 0) {
			t.Errorf("%d came back as %d, %v", n, got, err)
		}
	})
}
