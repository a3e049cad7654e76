package stats_test

import (
	"log/slog"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/stats"
)

// BenchmarkListContainerStats measures the containers that currently run on the engine.
func BenchmarkListContainerStats(b *testing.B) {
	s := stats.New(enginetest.Require(b), slog.New(slog.DiscardHandler))
	defer s.Close()
	for b.Loop() {
		if _, err := s.ListContainerStats(b.Context(), &runtimeapi.ListContainerStatsRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}
