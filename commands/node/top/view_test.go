package top

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/screen"
	"github.com/crishim/crishim/output"
)

// masked are the times and figures of a screen.
var masked = regexp.MustCompile(`\d`)

// TestScreens keeps what people see on three terminals, with and without colours, where no line may be wider.
func TestScreens(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {132, 30}, {220, 50}} {
		m, r := newView(t, size.width, size.height)
		r.text = "line of a log\n"
		screens := shown(m)
		types(m, "jj/shop")
		screens += "\n" + shown(m)
		types(m, "enter", "l")
		send(m, pageTick{m.page.id})
		screens += "\n" + shown(m)
		types(m, "esc", "?")
		screens += "\n" + shown(m) + "\n"
		for line := range strings.Lines(screens) {
			if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > size.width {
				t.Errorf("%d columns on %d: %s", w, size.width, line)
			}
		}
		if rows := strings.Count(m.View().Content, "\n") + 1; rows != size.height {
			t.Errorf("%d rows on %d", rows, size.height)
		}
		var trimmed strings.Builder
		for line := range strings.Lines(screens) {
			trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
		test.Golden(t, fmt.Sprintf("screen-%dx%d", size.width, size.height), masked.ReplaceAllString(trimmed.String(), "9"))
	}
	for _, tiny := range []struct{ width, height int }{{1, 1}, {5, 3}, {20, 5}, {60, 17}} {
		m, _ := newView(t, tiny.width, tiny.height)
		for _, keys := range []string{"G", "/x", "enter", "l", "esc", "x"} {
			types(m, keys)
			for line := range strings.Lines(shown(m)) {
				if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > tiny.width {
					t.Errorf("%d columns on %d: %q", w, tiny.width, line)
				}
			}
		}
	}
}

// TestPicture compares docs/top.svg with the view of a node on a terminal of 100 by 24; make golden draws it again.
func TestPicture(t *testing.T) {
	m := New(Options{Runtime: "containerd 2.1.4"})
	lists, stats := pictured()
	send(m, tea.WindowSizeMsg{Width: 100, Height: 24}, lists, Node{
		Load: [3]float64{1.84, 1.42, 1.10}, MemUsed: 9.1e9, MemTotal: 16.6e9, CPU: 12.4, Memory: 0, IO: 3.1, Images: 14e9, DiskUsed: 71e9, DiskTotal: 200e9,
	})
	for sample := range 120 {
		send(m, stats(sample))
	}
	types(m, "j")
	got := screen.SVG("A terminal: crishim top lists pods with their containers, CPU, memory, network and disk rates, and plots the last minutes of the selected container", m.View().Content, 100)
	const file = "../../../docs/top.svg"
	if os.Getenv("CRISHIM_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the view looks like now (%v): make golden, and look at it", file, err)
	}
}

// pictured are pods of a shop, and what they have used after so many samples.
func pictured() (Lists, func(int) Stats) {
	l := Lists{Known: output.Options{Now: now, Terminal: true, Statuses: map[string]*runtimeapi.ContainerStatusResponse{}, Members: map[string][]*runtimeapi.Container{}}}
	type use struct {
		cpu           float64
		memory, limit int64
		disk          int64
	}
	uses := map[string]use{}
	add := func(namespace, pod, name string, exit int32, restarts uint32, u use) {
		id := pod + "/" + name
		if !slices.ContainsFunc(l.Pods, func(p *runtimeapi.PodSandbox) bool { return p.Id == pod }) {
			l.Pods = append(l.Pods, &runtimeapi.PodSandbox{Id: pod, Metadata: &runtimeapi.PodSandboxMetadata{Name: pod, Namespace: namespace}, CreatedAt: now.Add(-26 * time.Hour).UnixNano()})
		}
		c := &runtimeapi.Container{
			Id: id, PodSandboxId: pod, Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: restarts}, State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: now.Add(-time.Hour).UnixNano(),
			Labels: map[string]string{"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": namespace}, Annotations: map[string]string{"io.kubernetes.container.restartCount": fmt.Sprint(restarts)},
		}
		if exit != 0 {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
			s := &runtimeapi.ContainerStatus{State: c.State, ExitCode: exit, Reason: "Error", FinishedAt: now.Add(-40 * time.Second).UnixNano()}
			if exit == 137 {
				s.Reason = "OOMKilled"
			}
			l.Known.Statuses[id] = &runtimeapi.ContainerStatusResponse{Status: s}
		} else {
			uses[id] = u
		}
		l.Containers = append(l.Containers, c)
		l.Known.Members[pod] = append(l.Known.Members[pod], c)
	}
	add("shop", "cart-7f9c6b5d4-x2kqp", "cart", 0, 0, use{84, 212e6, 512e6, 90e3})
	add("shop", "cart-7f9c6b5d4-x2kqp", "proxy", 0, 0, use{6, 41e6, 128e6, 0})
	add("shop", "search-5d8f7c9b6-m4vzt", "index", 0, 1, use{37, 1.31e9, 2e9, 2.4e6})
	add("shop", "mail-0", "mail", 137, 7, use{})
	add("shop", "import-29381", "import", 3, 0, use{})
	add("kube-system", "coredns-668d6bf9bc-9wl7n", "coredns", 0, 0, use{1.2, 23e6, 170e6, 0})
	add("kube-system", "node-exporter-t6hxs", "node-exporter", 0, 0, use{0.4, 19e6, 0, 0})
	return l, func(sample int) Stats {
		at := now.Add(time.Duration(sample) * 2 * time.Second)
		s := Stats{At: at, DiskAt: at}
		for id, u := range uses {
			wave := 0.6 + 0.25*math.Sin(float64(sample)/9) + 0.15*math.Sin(float64(sample)/2.3)
			net := int64(u.cpu * (2e4*float64(sample) + 1.2e5*(1-math.Cos(float64(sample)/8))))
			s.Usages = append(s.Usages, output.Usage{
				ID: id, CPUPercent: u.cpu * wave, Memory: int64(float64(u.memory) * (0.7 + 0.3*float64(sample%60)/60)), MemoryLimit: u.limit,
				NetworkIn: net, NetworkOut: net / 3, BlockRead: 0, BlockWrite: u.disk * int64(2*sample+sample/7), Pids: 9,
			})
		}
		return s
	}
}
