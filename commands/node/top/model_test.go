package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// someLists has three pods: a healthy pod, a pod with a killed container, a pod with a hostile name.
func someLists() lists {
	l := lists{Known: output.Options{Now: now, Terminal: true, Statuses: map[string]*runtimeapi.ContainerStatusResponse{}, Members: map[string][]*runtimeapi.Container{}}}
	pod := func(id, name string) {
		l.Pods = append(l.Pods, &runtimeapi.PodSandbox{Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "shop"}, CreatedAt: now.Add(-time.Hour).UnixNano()})
	}
	container := func(id, pod, name string, attempt uint32, state runtimeapi.ContainerState) {
		c := &runtimeapi.Container{Id: id, PodSandboxId: pod, Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, State: state, CreatedAt: now.Add(-time.Minute).UnixNano(), Image: &runtimeapi.ImageSpec{Image: "app:1"}}
		for _, p := range l.Pods {
			if p.Id == pod {
				c.Labels = map[string]string{"io.kubernetes.pod.name": p.Metadata.Name, "io.kubernetes.pod.namespace": "shop"}
			}
		}
		l.Containers = append(l.Containers, c)
		l.Known.Members[pod] = append(l.Known.Members[pod], c)
	}
	pod("p1", "cart-7f9c6b5d4-abcde")
	pod("p2", "web")
	pod("p3", "evil\x1b[2J")
	container("c1", "p1", "cart", 0, runtimeapi.ContainerState_CONTAINER_RUNNING)
	container("c2", "p1", "proxy", 0, runtimeapi.ContainerState_CONTAINER_RUNNING)
	container("old", "p2", "web", 11, runtimeapi.ContainerState_CONTAINER_EXITED)
	container("c3", "p2", "web", 12, runtimeapi.ContainerState_CONTAINER_EXITED)
	l.Known.Statuses["c3"] = &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 137, Reason: "OOMKilled", FinishedAt: now.Add(-3 * time.Minute).UnixNano(),
	}}
	return l
}

// someStats returns the counters after a number of samples, one per second.
func someStats(samples int) nodeStats {
	usage := func(id string, cpu float64, memory, limit int64) output.Usage {
		n := int64(samples)
		return output.Usage{ID: id, CPUPercent: cpu * float64(1+samples%3), Memory: memory, MemoryLimit: limit, NetworkIn: 1000 * n, NetworkOut: 500 * n, BlockRead: 4096 * n, BlockWrite: 0, Pids: 3}
	}
	at := now.Add(time.Duration(samples) * time.Second)
	return nodeStats{At: at, DiskAt: at, Usages: []output.Usage{usage("c1", 12.5, 50e6, 100e6), usage("c2", 30, 20e6, 0)}}
}

// runs records the command lines that a view has run.
type runs struct {
	lines []string
	text  string
	err   error
}

func (r *runs) run(_ context.Context, out io.Writer, _ int, args ...string) error {
	r.lines = append(r.lines, strings.Join(args, " "))
	_, _ = io.WriteString(out, r.text)
	return r.err
}

type noSession struct{}

func (noSession) Run() error          { return nil }
func (noSession) SetStdin(io.Reader)  {}
func (noSession) SetStdout(io.Writer) {}
func (noSession) SetStderr(io.Writer) {}

func newView(t *testing.T, width, height int) (*Model, *runs) {
	t.Helper()
	r := &runs{}
	m := newModel(Options{Runtime: "containerd 2.1", Sort: "name", Run: r.run, Session: func(args ...string) tea.ExecCommand {
		r.lines = append(r.lines, strings.Join(args, " "))
		return noSession{}
	}})
	send(m, tea.WindowSizeMsg{Width: width, Height: height}, someLists(), nodeUsage{
		Load: [3]float64{0.5, 1, 2}, MemUsed: 3e9, MemTotal: 16e9, CPU: 1.25, Memory: 0, IO: 7, Images: 2e9, DiskUsed: 40e9, DiskTotal: 100e9,
	})
	for sample := range 20 {
		send(m, someStats(sample))
	}
	return m, r
}

// send sends messages to a model, and the results of its commands. It ignores the ticks of pages.
func send(m *Model, messages ...tea.Msg) (quit bool) {
	for len(messages) > 0 {
		msg := messages[0]
		messages = messages[1:]
		switch of := msg.(type) {
		case tea.QuitMsg:
			quit = true
			continue
		case tea.BatchMsg: // from a page: its command and its tick
			messages = append(messages, of[0]())
			continue
		}
		if _, cmd := m.Update(msg); cmd != nil {
			messages = append(messages, cmd())
		}
	}
	return quit
}

// types sends keys, by name or as text.
func types(m *Model, keys ...string) (quit bool) {
	special := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight},
		"delete": {Code: tea.KeyDelete}, "tab": {Code: tea.KeyTab}, "backspace": {Code: tea.KeyBackspace}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd}, "pgup": {Code: tea.KeyPgUp}, "pgdown": {Code: tea.KeyPgDown},
		"ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+u": {Code: 'u', Mod: tea.ModCtrl}, "ctrl+z": {Code: 'z', Mod: tea.ModCtrl}, "ctrl+l": {Code: 'l', Mod: tea.ModCtrl},
	}
	for _, k := range keys {
		if key, ok := special[k]; ok {
			quit = send(m, tea.KeyPressMsg(key)) || quit
			continue
		}
		for _, r := range k {
			quit = send(m, tea.KeyPressMsg{Code: r, Text: string(r)}) || quit
		}
	}
	return quit
}

func shown(m *Model) string { return ansi.Strip(m.View().Content) }

func names(m *Model) (all []string) {
	for _, n := range m.rows {
		all = append(all, n.id)
	}
	return all
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		keys     string
		selected string
		rows     string
	}{
		{"", "p1", "p1 c1 c2 p3 p2 c3"},
		{"j", "c1", "p1 c1 c2 p3 p2 c3"},
		{"j down k", "c1", "p1 c1 c2 p3 p2 c3"},
		{"end", "c3", "p1 c1 c2 p3 p2 c3"},
		{"G home", "p1", "p1 c1 c2 p3 p2 c3"},
		{"pgdown", "c3", "p1 c1 c2 p3 p2 c3"},
		{"G pgup g", "p1", "p1 c1 c2 p3 p2 c3"},
		{"j enter", "p1", "p1 p3 p2 c3"},
		{"left right", "p1", "p1 c1 c2 p3 p2 c3"},
		{"G tab", "p2", "p1 p3 p2"},
		{"tab tab", "p1", "p1 c1 c2 p3 p2 c3"},
		{"O", "p1", "p2 c3 p3 p1 c2 c1"},
		{"o", "p1", "p1 c2 c1 p3 p2 c3"},
		{"oo", "p1", "p1 c1 c2 p3 p2 c3"},
		{"ooooo", "p1", "p2 c3 p1 c1 c2 p3"},
		{"/ proxy", "p1", "p1 c2"},
		{"/ OOM", "p2", "p2 c3"},
		{"/ proxy enter tab esc", "p1", "p1 p3 p2"},
		{"/ prox backspace backspace backspace backspace c a r t enter", "p1", "p1 c1 c2"},
		{"/ nothing ctrl+u enter", "p3", "p1 c1 c2 p3 p2 c3"},
		{"/ nothing", "p3", ""},
		{"/ x esc", "p1", "p1 c1 c2 p3 p2 c3"},
		{"ctrl+l ctrl+z", "p1", "p1 c1 c2 p3 p2 c3"},
	} {
		m, _ := newView(t, 80, 24)
		types(m, strings.Fields(c.keys)...)
		if got := strings.Join(names(m), " "); got != c.rows || m.selected != c.selected {
			t.Errorf("%q: got %s of %s, want %s of %s", c.keys, m.selected, got, c.selected, c.rows)
		}
	}
	for _, keys := range []string{"q", "ctrl+c", "/ x ctrl+c", "d ctrl+c"} {
		if m, _ := newView(t, 80, 24); !types(m, strings.Fields(keys)...) {
			t.Errorf("%s does not end it", keys)
		}
	}
}

// Keys run commands that users could also type.
func TestVerbs(t *testing.T) {
	for keys, want := range map[string]string{
		"d": "describe p1", "j d": "describe p1", "w": "why p1", "j w": "why c1", "l": "logs --tail 2000 --follow-restarts c1", "j j l": "logs --tail 2000 --follow-restarts c2",
		"j j l p": "logs --tail 2000 --follow-restarts c2, logs --tail 2000 --previous c2", "l p p": "logs --tail 2000 --follow-restarts c1, logs --tail 2000 --previous c1, logs --tail 2000 --follow-restarts c1",
		"s":   "exec --stdin --tty c1",
		"x y": "stopp p1", "j x y": "stop c1", "x n": "", "x enter": "", "r y": "restart c1 c2", "j r y": "restart c1", "r n": "", "p y": "pause c1 c2", "j p y": "pause c1", "D y": "rmp --force p1", "j delete y": "rm --force c1", "D n": "", "G r y": "", "G p y": "", "G D y": "rm --force c3", "d esc d q d": "describe p1, describe p1, describe p1", "j j j s": "", "j j j l": "", "?": "",
	} {
		m, r := newView(t, 80, 24)
		r.text = "said\n"
		types(m, strings.Fields(keys)...)
		if got := strings.Join(r.lines, ", "); got != want {
			t.Errorf("%s: got %s, want %s", keys, got, want)
		}
	}
	m, _ := newView(t, 80, 24)
	if types(m, "G", "s"); !strings.Contains(shown(m), " is not running") {
		t.Errorf("a shell in what has ended:\n%s", shown(m))
	}
	if types(m, "?"); strings.Contains(shown(m), "(ended)") {
		t.Errorf("the page of the keys:\n%s", shown(m))
	}
	m, r := newView(t, 80, 24)
	r.err = errors.New("crishim: it does not stop\nhint: no")
	types(m, "x")
	if !strings.Contains(shown(m), "stop shop/cart-7f9c6b5d4-abcde? y/n") {
		t.Errorf("no question:\n%s", shown(m))
	}
	if types(m, "y"); !strings.Contains(shown(m), "stop: it does not stop") || len(r.lines) != 1 {
		t.Errorf("no error:\n%s", shown(m))
	}
}

// TestPausedGoesOn: the pause key resumes a paused container.
func TestPausedGoesOn(t *testing.T) {
	m, r := newView(t, 80, 24)
	l := someLists()
	l.Containers[0].Annotations = map[string]string{kube.AnnotationPaused: "true"}
	send(m, l)
	if types(m, "j", "p", "y"); len(r.lines) != 1 || r.lines[0] != "unpause c1" {
		t.Errorf("got %q:\n%s", r.lines, shown(m))
	}
}

// TestActionsAreListed: after an action, the lists are refreshed at once.
func TestActionsAreListed(t *testing.T) {
	m, _ := newView(t, 80, 24)
	asked := 0
	m.o.Refresh = func() { asked++ }
	if types(m, "x", "y"); asked != 1 {
		t.Errorf("asked %d times after a stop", asked)
	}
}

// TestRowsHoldStill: for holdTime after a key, new figures do not reorder the rows.
func TestRowsHoldStill(t *testing.T) {
	m, _ := newView(t, 80, 24)
	at := now
	m.o.Now = func() time.Time { return at }
	types(m, "o", "j") // the order: restarts, ..., cpu
	for orders[m.order].name != "cpu" {
		types(m, "o")
	}
	types(m, "j")
	before := strings.Join(names(m), " ")
	busy := someStats(30)
	busy.Usages[0].CPUPercent, busy.Usages[1].CPUPercent = 99, 1
	more := someLists()
	more.Pods = append(more.Pods, &runtimeapi.PodSandbox{Id: "p0", Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Namespace: "a"}})
	send(m, busy, more)
	if got := strings.Join(names(m), " "); got != before+" p0" {
		t.Errorf("got %s, want %s and the new one", got, before)
	}
	at = at.Add(holdTime)
	send(m, busy)
	if got := strings.Join(names(m), " "); got == before+" p0" {
		t.Errorf("still %s", got)
	}
}

// TestSearch: the search finds the last matching line first, and scrolls to its row in a wrapped page.
func TestSearch(t *testing.T) {
	m, r := newView(t, 80, 24)
	r.text = "Needle one\n" + strings.Repeat(strings.Repeat("x", 200)+"\n", 40) + "two needle\n" + strings.Repeat("end\n", 60)
	types(m, "l")
	send(m, pageTick{m.page.id})
	if types(m, "/", "needle", "enter"); !strings.Contains(shown(m), "two needle") || strings.Contains(shown(m), "Needle one") {
		t.Errorf("the last:\n%s", shown(m))
	}
	if types(m, "n"); !strings.Contains(shown(m), "Needle one") {
		t.Errorf("the next, which is the first:\n%s", shown(m))
	}
	if types(m, "N"); !strings.Contains(shown(m), "two needle") {
		t.Errorf("the one before:\n%s", shown(m))
	}
	types(m, "w") // turns wrapping off
	if rows := strings.Count(shown(m), "xxx"); rows == 0 || strings.Contains(shown(m), strings.Repeat("x", 80)+"\n"+strings.Repeat("x", 80)+"\n"+strings.Repeat("x", 40)+" ") {
		t.Errorf("cut lines:\n%s", shown(m))
	}
	if types(m, "/", "nothing", "enter"); !strings.Contains(shown(m), "nothing is not found") {
		t.Errorf("what is not there:\n%s", shown(m))
	}
	types(m, "/", "needle", "enter", "esc")
	if m.page == nil || m.page.search != "" {
		t.Error("Esc does not end the search alone")
	}
	if types(m, "esc"); m.page != nil {
		t.Error("Esc does not close the page")
	}
}

// TestASCII: a terminal without UTF-8 gets only ASCII characters.
func TestASCII(t *testing.T) {
	m, _ := newView(t, 80, 24)
	m.o.ASCII = true
	l := someLists()
	l.Pods[1].Metadata.Name = "w\u00e9b\u4e16"
	send(m, l)
	for _, text := range []string{shown(m), m.wholeList()} {
		if i := strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }); i >= 0 {
			t.Errorf("at %d:\n%s", i, text)
		}
	}
	for line := range strings.Lines(shown(m)) {
		if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > 80 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
	for value, want := range map[string]bool{"": false, "C": false, "de_DE.ISO-8859-1": false, "C.UTF-8": true, "en_US.utf8": true} {
		if got := unicodeLocale(func(name string) (string, bool) { return value, name == "LANG" }); got != want {
			t.Errorf("%q: got %v", value, got)
		}
	}
}

// Output and names of containers are escaped before they reach the terminal.
func TestHostileText(t *testing.T) {
	m, r := newView(t, 80, 24)
	if !strings.Contains(shown(m), `shop/evil\x1b[2J`) {
		t.Errorf("a pod's name:\n%s", shown(m))
	}
	r.text = "a\x1b[2J\x1b[31mred\x1b[0m\tb\x1b]0;title\x07c\u202e\r\n\xff" // the last line has no newline
	types(m, "l")
	if lines := m.page.text.lines; !slices.Equal(lines, []string{`ared    bc\u{202e}`, ""}) {
		t.Errorf("a log: %q", lines)
	}
	send(m, lost{"gone"}, tea.PasteMsg{Content: "x"})
	if !strings.Contains(shown(m), "(ended)") {
		t.Errorf("the page does not say that it has ended:\n%s", shown(m))
	}
	types(m, "esc", "/")
	send(m, tea.PasteMsg{Content: "car\x1b[2Jt\n"})
	if m.filter != `car\x1b[2Jt` {
		t.Errorf("pasted: %q", m.filter)
	}
}

// A log may be endless and fast.
func TestPageIsBounded(t *testing.T) {
	page := text{coloured: true}
	for range 10 * pageLines {
		fmt.Fprint(&page, "line\nand ")
	}
	fmt.Fprint(&page, strings.Repeat("x", 3*maxLine)+"\n", strings.Repeat("y", 3*maxLine))
	page.end(nil)
	if len(page.lines) > 2*pageLines+1 {
		t.Errorf("%d lines", len(page.lines))
	}
	for _, line := range page.lines[len(page.lines)-2:] {
		if len(line) > maxLine {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// A row stays selected and visible when other rows change.
func TestSelection(t *testing.T) {
	m, _ := newView(t, 80, 12)
	types(m, "G")
	if m.selected != "c3" || !strings.Contains(shown(m), "Exited") {
		t.Errorf("got %s:\n%s", m.selected, shown(m))
	}
	gone := someLists()
	gone.Pods, gone.Containers = gone.Pods[:1], gone.Containers[:2]
	send(m, gone)
	if m.selected != "c2" {
		t.Errorf("got %s, want the last row", m.selected)
	}
	send(m, lists{Known: output.Options{}}, someStats(30))
	if !strings.Contains(shown(m), "no pods") || len(m.history) != 0 {
		t.Errorf("of nothing, and %d histories:\n%s", len(m.history), shown(m))
	}
	types(m, "dlsxyfjk ")
	orphan := someLists()
	orphan.Pods = nil
	if send(m, orphan); len(m.rows) != 5 {
		t.Errorf("containers without sandboxes: %v", names(m))
	}
}
