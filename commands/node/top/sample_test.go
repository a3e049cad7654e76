package top

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRates(t *testing.T) {
	m, _ := newView(t, 80, 24)
	got := m.figures["c1"]
	if got.netIn != 1000 || got.netOut != 500 || got.reads != 4096 || got.writes != 0 {
		t.Errorf("got %+v", got)
	}
	same := someStats(20)
	same.DiskAt = now.Add(19 * time.Second) // no newer disk counters
	if send(m, same); m.figures["c1"].reads != 4096 {
		t.Errorf("the rate of disks is forgotten: %+v", m.figures["c1"])
	}
	if r := rate(10, 5, time.Second); r != unknown { // a counter that was reset
		t.Errorf("got %v", r)
	}
	pod := m.tree[0].figures
	if pod.memory != 70e6 || pod.limit != unknown || pod.netIn != 1000 || pod.pids != 6 {
		t.Errorf("of the pod: %+v", pod)
	}
	if send(m, nodeStats{Err: "no such call"}); !strings.Contains(shown(m), "no figures: no such call") {
		t.Error("what fails is not said")
	}
}

// A plot scrolls left by whole cells. Each cell shows the maximum of its samples.
func TestPlot(t *testing.T) {
	h := &history{}
	value := func(p point) float32 { return p.cpu }
	for n := range 4 {
		h.add(now.Add(time.Duration(n)*time.Second), figures{cpu: float64(n)})
	}
	if rows, top := plot(h, value, 6, 1); top != 3 || rows[0] != "   ▃▆█" {
		t.Errorf("got %q, top %v", rows, top)
	}
	if rows, _ := plot(h, value, 2, 2); !slices.Equal(rows, []string{" █", "▆█"}) {
		t.Errorf("two samples to a cell: %q", rows)
	}
	for n := range 1000 {
		h.add(now.Add(time.Duration(4+n)*time.Second), figures{cpu: 1})
	}
	if len(h.ring) != historySize || h.span() != (historySize-1)*time.Second {
		t.Errorf("%d samples of %s", len(h.ring), h.span())
	}
	if rows, top := plot(nil, value, 3, 1); rows[0] != "   " || top != 0 {
		t.Errorf("of nothing: %q", rows)
	}
}

func TestPace(t *testing.T) {
	for used, want := range map[time.Duration]time.Duration{0: leastPause, 100 * time.Millisecond: 5 * time.Second, time.Minute: mostPause} {
		if got := pace(used); got != want {
			t.Errorf("%s: got %s, want %s", used, got, want)
		}
	}
	for used, want := range map[time.Duration]time.Duration{0: 0, 10 * time.Millisecond: 500 * time.Millisecond, time.Minute: listPeriod} {
		if got := listPause(used); got != want {
			t.Errorf("lists, %s: got %s, want %s", used, got, want)
		}
	}
}

func TestNode(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{
		"loadavg": "0.5 1.0 2.0 1/2 3\n", "meminfo": "MemTotal: 1000 kB\nMemAvailable: 250 kB\n",
		"pressure/io": "some avg10=7.00 avg60=0 avg300=0 total=1\nfull avg10=0 avg60=0 avg300=0 total=1\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := readNode(proc)
	if got := n.line(80); got != "load 0.50 1.00 2.00  mem 75% of 1.02MB  psi -/-/7.0%" {
		t.Errorf("got %s", got)
	}
	if n.addDisk("/"); n.DiskTotal <= 0 || n.DiskUsed > n.DiskTotal {
		t.Errorf("got %+v", n)
	}
	if got := unknownNode().line(80); !strings.Contains(got, "not known") {
		t.Errorf("got %s", got)
	}
}

// TestIDsThatAreFlags: keys put ids into command lines, so rows with an id that begins with a dash are omitted.
func TestIDsThatAreFlags(t *testing.T) {
	t.Parallel()
	tree := treeOf(lists{
		Pods:       []*runtimeapi.PodSandbox{{Id: "--profile-mem=/tmp/x"}, {Id: "p"}},
		Containers: []*runtimeapi.Container{{Id: "--profile-cpu=/tmp/x", PodSandboxId: "p"}, {Id: "c", PodSandboxId: "--debug"}},
	}, nil)
	if len(tree) != 1 || tree[0].id != "p" || len(tree[0].members) != 0 {
		t.Errorf("got %+v", tree)
	}
}
