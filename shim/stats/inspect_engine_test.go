package stats_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/state"
	"github.com/crishim/crishim/shim/stats"
)

type counting struct {
	*docker.Client
	inspected atomic.Int64
}

func (c *counting) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	c.inspected.Add(1)
	return c.Client.ContainerInspect(ctx, id)
}

// TestListsInspectOnceOnEngine checks that a list inspects a known container again only if its process has changed.
func TestListsInspectOnceOnEngine(t *testing.T) {
	engine := &counting{Client: enginetest.Require(t)}
	s := stats.New(engine, slog.New(slog.DiscardHandler))
	defer s.Close()
	name := "k8s_main_web_stats_" + rand.Text() + "_0"
	config := &container.Config{
		Image: cmp.Or(os.Getenv("CRISHIM_TEST_IMAGE"), "busybox:crishim"), Cmd: []string{"sleep", "1000"},
		Labels: map[string]string{state.LabelType: state.TypeContainer, "io.kubernetes.container.name": "main"},
	}
	made, err := engine.ContainerCreate(t.Context(), config, nil, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	for _, step := range []struct {
		restart bool
		want    int64
	}{{true, 1}, {false, 0}, {true, 1}} {
		if step.restart {
			zero := 0
			if err := engine.ContainerRestart(t.Context(), made.ID, container.StopOptions{Timeout: &zero}); err != nil {
				t.Fatal(err)
			}
		}
		engine.inspected.Store(0)
		list, err := s.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: made.ID}})
		if err != nil || len(list.GetStats()) != 1 || engine.inspected.Load() != step.want {
			t.Errorf("restarted %v: %d inspections, want %d; %v, %v", step.restart, engine.inspected.Load(), step.want, list, err)
		}
	}
}
