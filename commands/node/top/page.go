package top

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/crishim/crishim/output"
)

// page is what a verb prints, in place of the list.
type page struct {
	id     int
	title  string
	view   viewport.Model
	text   *text
	shown  int // the version of the text
	ended  bool
	cancel context.CancelFunc
}

const (
	// pageLines are as many as a page shows; twice as many are kept.
	pageLines = 2000
	// pagePeriod is how often a page looks for new lines: a log may have thousands a second.
	pagePeriod = 100 * time.Millisecond
)

// pageTick is the time to look for new lines.
type pageTick struct{ page int }

// text is what a verb has printed, written by it and read by the page.
type text struct {
	coloured bool // by us: else escape sequences are taken away

	mu      sync.Mutex // guards what follows
	lines   []string
	rest    string // a line without its end
	version int
	ended   bool
}

// Write takes lines.
func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version++
	lines := strings.Split(t.rest+string(b), "\n")
	t.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		t.lines = append(t.lines, t.harmless(line))
	}
	if len(t.rest) > maxLine {
		t.rest = t.rest[:maxLine]
	}
	if len(t.lines) > 2*pageLines {
		t.lines = slices.Clone(t.lines[len(t.lines)-pageLines:])
	}
	return len(b), nil
}

// maxLine bounds a line that does not end.
const maxLine = 64 << 10

// harmless is a line as a terminal may have it: programs colour what they log, and may do worse.
func (t *text) harmless(line string) string {
	if t.coloured {
		return line
	}
	line = strings.TrimSuffix(line, "\r")
	return output.Sanitize(strings.ReplaceAll(ansi.Strip(line), "\t", "    "))
}

func (t *text) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rest != "" {
		t.lines, t.rest = append(t.lines, t.harmless(t.rest)), ""
	}
	if err != nil {
		t.lines = append(t.lines, oneLine(err.Error()))
	}
	t.version++
	t.ended = true
}

// verb opens a page with what a verb prints.
func (m *Model) verb(title string, width int, args ...string) tea.Cmd {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := m.open(title, func(out io.Writer) error { return m.o.Run(ctx, out, width, args...) })
	m.page.cancel, m.page.text.coloured = cancel, width > 0
	return cmd
}

// open opens a page with what print writes.
func (m *Model) open(title string, print func(io.Writer) error) tea.Cmd {
	m.pages++
	p := &page{id: m.pages, title: title, view: viewport.New(), text: &text{coloured: true}, cancel: func() {}}
	p.view.SoftWrap = true
	m.page = p
	p.resize(m.width, m.pageRows())
	return tea.Batch(func() tea.Msg {
		p.text.end(print(p.text))
		return pageTick{p.id}
	}, p.tick())
}

func (p *page) tick() tea.Cmd {
	return tea.Tick(pagePeriod, func(time.Time) tea.Msg { return pageTick{p.id} })
}

// refresh takes new lines into the view, which stays at the end if it is there.
func (p *page) refresh(tick pageTick) tea.Cmd {
	if p == nil || p.id != tick.page || p.ended {
		return nil
	}
	p.text.mu.Lock()
	lines, version, ended := slices.Clone(p.text.lines[max(len(p.text.lines)-pageLines, 0):]), p.text.version, p.text.ended
	p.text.mu.Unlock()
	if version != p.shown {
		follows := p.view.AtBottom() && p.shown > 0 || p.shown == 0 && !p.text.coloured
		p.view.SetContentLines(lines)
		if follows {
			p.view.GotoBottom()
		}
		p.shown = version
	}
	if p.ended = ended; ended {
		return nil
	}
	return p.tick()
}

func (p *page) resize(width, height int) {
	if p == nil {
		return
	}
	follows := p.view.AtBottom() && p.shown > 0
	p.view.SetWidth(width)
	p.view.SetHeight(height)
	if follows {
		p.view.GotoBottom()
	}
}

// press scrolls.
func (p *page) press(k tea.KeyPressMsg) (cmd tea.Cmd) {
	switch k.String() {
	case "home", "g":
		p.view.GotoTop()
	case "end", "G":
		p.view.GotoBottom()
	default:
		p.view, cmd = p.view.Update(k)
	}
	return cmd
}

// close ends the verb.
func (p *page) close() {
	if p != nil {
		p.cancel()
	}
}
