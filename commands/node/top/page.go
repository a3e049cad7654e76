package top

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/crishim/crishim/output"
)

// page shows the output of a verb in place of the list.
type page struct {
	id        int
	title     string
	view      viewport.Model
	text      *text
	shown     int // version of the text in lines; 0: nothing yet
	ended     bool
	cancel    context.CancelFunc
	container *node // of a log
	previous  bool  // the log belongs to the previous attempt

	lines  []string // lines in the view
	search string   // while it is set, the lines do not change
	at     int      // the line that was found
}

const (
	// pageLines is how many lines a page shows. Twice as many are kept.
	pageLines = 2000
	// pagePeriod is the refresh interval of a page: a log may have thousands of lines per second.
	pagePeriod = 100 * time.Millisecond
)

// pageTick is the message to refresh a page.
type pageTick struct{ page int }

// text is the output of a verb, which the page reads.
type text struct {
	coloured bool // by crishim; else escape sequences are removed

	mu      sync.Mutex // guards the fields below
	lines   []string
	rest    string // a line without its end
	version int
	ended   bool
}

// Write appends complete lines. An incomplete last line waits for the next call.
func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version++
	lines := strings.Split(t.rest+string(b), "\n")
	t.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		t.lines = append(t.lines, t.harmless(line[:min(len(line), maxLine)]))
	}
	if len(t.rest) > maxLine {
		t.rest = t.rest[:maxLine]
	}
	if len(t.lines) > 2*pageLines {
		t.lines = slices.Clone(t.lines[len(t.lines)-pageLines:])
	}
	return len(b), nil
}

// maxLine bounds a line: containers may write lines of any length.
const maxLine = 64 << 10

// harmless makes a line safe for a terminal: logs may contain colours and other escape sequences.
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

// verb opens a page with the output of a verb.
func (m *Model) verb(title string, width int, args ...string) tea.Cmd {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := m.open(title, func(out io.Writer) error { return m.o.Run(ctx, out, width, args...) })
	m.page.cancel, m.page.text.coloured = cancel, width > 0
	return cmd
}

// logs opens the log of a container.
func (m *Model) logs(c *node, previous bool) tea.Cmd {
	title, args := "logs "+c.name(), []string{"logs", "--tail", fmt.Sprint(pageLines)}
	if previous {
		title, args = "previous "+title, append(args, "--previous")
	} else {
		args = append(args, "--follow-restarts")
	}
	cmd := m.verb(title, 0, append(args, c.id)...)
	m.page.container, m.page.previous = c, previous
	return cmd
}

// heading returns the first line of a page.
func (p *page) heading() string {
	text := p.title
	if p.ended && !p.text.coloured { // only a log, which is a page without colours, shows its end
		text += " (ended)"
	}
	if p.search != "" {
		text += "  search " + p.search
	}
	return text
}

// open opens a page with the output of print.
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

// refresh adds new lines to the view. A view at the end stays at the end.
func (p *page) refresh(tick pageTick) tea.Cmd {
	if p == nil || p.id != tick.page || p.ended {
		return nil
	}
	if p.search != "" {
		return p.tick()
	}
	p.text.mu.Lock()
	lines, version, ended := slices.Clone(p.text.lines[max(len(p.text.lines)-pageLines, 0):]), p.text.version, p.text.ended
	p.text.mu.Unlock()
	if version != p.shown {
		follows := p.view.AtBottom() && p.shown > 0 || p.shown == 0 && !p.text.coloured
		p.lines = lines
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

// pressInPage handles a key while a page is open.
func (m *Model) pressInPage(k tea.KeyPressMsg) (cmd tea.Cmd) {
	p := m.page
	m.note = ""
	switch {
	case key.Matches(k, keyBack) && p.search != "":
		p.search = ""
		p.view.SetContentLines(p.lines)
	case key.Matches(k, keyBack, keyQuit):
		p.close()
		m.page = nil
	case key.Matches(k, keySearch):
		m.typing, m.line = aSearch, ""
	case key.Matches(k, keyNext):
		m.note = p.next(1)
	case key.Matches(k, keyBefore):
		m.note = p.next(-1)
	case key.Matches(k, keyWrap):
		end := p.view.AtBottom()
		p.view.SoftWrap = !p.view.SoftWrap
		p.view.SetXOffset(0)
		p.view.SetYOffset(p.view.YOffset()) // SetYOffset limits the offset: there may be fewer rows
		if m.note = p.next(0); end {
			p.view.GotoBottom()
		}
	case key.Matches(k, keyPrevious) && p.container != nil:
		p.close()
		return m.logs(p.container, !p.previous)
	case key.Matches(k, keyTop):
		p.view.GotoTop()
	case key.Matches(k, keyBottom):
		p.view.GotoBottom()
	default:
		p.view, cmd = p.view.Update(k)
	}
	return cmd
}

// next moves to the next line that contains the search text, or with a step of -1 to the previous, and wraps around.
// With a step of 0 it marks the found line again. If no line contains the text, it ends the search and returns a note
// for the user.
func (p *page) next(step int) string {
	if p.search == "" {
		return ""
	}
	search := strings.ToLower(p.search)
	for range p.lines {
		p.at = (p.at + step + len(p.lines)) % len(p.lines)
		found := ansi.Strip(p.lines[p.at])
		if !strings.Contains(strings.ToLower(found), search) {
			continue
		}
		lines, above := slices.Clone(p.lines), 0
		lines[p.at] = marked.Render(found)
		for _, line := range lines[:p.at] {
			above++
			if p.view.SoftWrap && p.view.Width() > 0 {
				above += max(ansi.StringWidth(line)-1, 0) / p.view.Width()
			}
		}
		p.view.SetContentLines(lines)
		p.view.SetYOffset(above - p.view.Height()/2)
		return ""
	}
	text := p.search + " is not found"
	p.search = ""
	return text
}

// close ends the verb.
func (p *page) close() {
	if p != nil {
		p.cancel()
	}
}
