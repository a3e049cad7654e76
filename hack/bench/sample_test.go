package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSummarize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		values []float64
		want   figures
	}{
		{"none", nil, figures{}},
		{"one", []float64{3}, figures{1, 3, 3, 3}},
		{"unsorted", []float64{5, 1, 4, 2, 3}, figures{5, 2, 3, 4}},
	} {
		if got := summarize(tt.values); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		row  row
		want string
	}{
		{"no target", row{Ours: one(5)}, ""},
		{"under the limit", row{Ours: one(5), Target: target{Max: 6}}, "yes"},
		{"over the limit", row{Ours: one(6), Target: target{Max: 6}}, "no"},
		{"as fast", row{Ratio: one(1), Target: target{MaxRatio: 1}}, "yes"},
		{"slower", row{Ratio: one(1.01), Target: target{MaxRatio: 1}}, "no"},
		{"too little", row{Ratio: one(0.79), Target: target{MinRatio: 0.8}}, "no"},
		{"a figure from elsewhere decides nothing", row{Ours: one(1), Target: target{MaxRatio: 1}}.quote("crictl", 2), ""},
		{"but a limit of its own does", row{Ours: one(1), Target: target{Max: 2}}.quote("crictl", 2), "yes"},
	} {
		if got := tt.row.verdict(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestResultsAreReadBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "old.json")
	old := results{Commit: "a", Rows: []row{{What: "ps", Unit: milliseconds, Ours: one(10), PeerName: "docker ps"}}}
	if err := old.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(path)
	if err != nil {
		t.Fatal(err)
	}
	now := row{What: "ps", Unit: milliseconds, Ours: one(5), PeerName: "docker ps"}
	if before := now.before(got); before != "10 ms\t0.50" {
		t.Errorf("got %q", before)
	}
	now.PeerName = "the engine's API"
	if before := now.before(got); before != "-\t-" {
		t.Errorf("another peer's row: got %q", before)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(path); err == nil {
		t.Error("half a file was read")
	}
}
