// Package top is the live view of the pods on a node: a tree with figures, plots of the last minutes for the
// selected row, and keys that run other verbs on it.
//
// [Model] does not use a terminal: it takes messages ([lists], [nodeStats], [nodeUsage], [lost], keys) and returns a page
// of text. [Run] feeds it from a runtime and draws it. [Sample] and [Print] write one page. [Options.Run] and
// [Options.Session] run verbs as command lines, so that this package does not depend on the verbs.
package top

import (
	"context"
	"io"
	"slices"
	"time"

	"charm.land/bubbles/v2/help"
	tea "charm.land/bubbletea/v2"

	"github.com/crishim/crishim/output"
)

// Options has the settings of a view and its callbacks.
type Options struct {
	Runtime string        // name for the title
	Every   time.Duration // time between two samples; 0: depends on the CPU time of a sample
	Sort    string        // one of Orders; "" is the first
	// Run runs a verb and writes its output: for a terminal of the given width, or as plain text if the width is 0.
	Run func(ctx context.Context, out io.Writer, width int, args ...string) error
	// Session returns a verb that takes over the terminal.
	Session func(args ...string) tea.ExecCommand
	// Suspend stops the process, as Ctrl-Z does.
	Suspend func()
	// Refresh requests lists at once.
	Refresh func()
	Now     func() time.Time
	ASCII   bool // the terminal has no UTF-8
}

// Model is the state of the view.
type Model struct {
	o             Options
	width, height int

	lists    lists
	node     nodeUsage
	lost     string
	stats    nodeStats
	figures  map[string]figures // of containers
	history  map[string]*history
	tree     []*node
	rows     []*node
	listed   bool
	order    int
	reverse  bool
	filter   string
	folded   map[string]bool
	selected string    // the id of a row
	moved    bool      // the user has pressed a key in the list; until then the first row is selected
	touched  time.Time // time of the last key in the list; zero after a key that sorts or ends the filter
	first    int       // the row on top of the screen

	typing   typing
	line     string // the input
	question question
	page     *page
	pages    int
	note     string // result of the last action
	help     help.Model
}

// typing is the purpose of the input in the last line.
type typing int

const (
	nothing typing = iota
	aFilter
	aSearch
	aQuestion
)

// question is an action that waits for confirmation.
type question struct {
	word, done string // stop, stopped
	name       string
	args       []string // of the verb
}

// newModel returns an empty view.
func newModel(o Options) *Model {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Model{o: o, width: 80, height: 24, node: unknownNode(), figures: map[string]figures{}, history: map[string]*history{}, folded: map[string]bool{}, help: help.New()}
	m.order = max(slices.Index(Orders(), o.Sort), 0)
	m.help.ShortSeparator, m.help.Ellipsis = "  ", "…"
	m.help.Styles = help.Styles{ShortKey: strong, FullKey: strong}
	return m
}

// Init returns no command: Run sends the data.
func (m *Model) Init() tea.Cmd { return nil }

// acted is the message that an action on the selected row has ended.
type acted struct{ note string }

// Update takes a message.
func (m *Model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.page.resize(m.width, m.pageRows())
	case lists:
		m.lists, m.lost, m.listed = msg, "", true
	case nodeStats:
		m.measure(msg)
	case nodeUsage:
		m.node = msg
	case lost:
		m.lost = msg.Why
	case acted:
		m.note = msg.note
		if m.o.Refresh != nil {
			m.o.Refresh()
		}
	case pageTick:
		return m, m.page.refresh(msg)
	case tea.KeyPressMsg:
		cmd := m.press(msg)
		m.arrange()
		return m, cmd
	case tea.PasteMsg:
		if m.typing == aFilter || m.typing == aSearch {
			m.typed(msg.Content)
		}
	}
	m.arrange()
	return m, nil
}

// measure computes rates from the counters and the previous counters.
func (m *Model) measure(s nodeStats) {
	if s.Err != "" {
		m.stats.Err = s.Err
		return
	}
	elapsed, ofDisks := s.At.Sub(m.stats.At), s.DiskAt.Sub(m.stats.DiskAt)
	before := map[string]*output.Usage{}
	for i := range m.stats.Usages {
		before[m.stats.Usages[i].ID] = &m.stats.Usages[i]
	}
	now := map[string]figures{}
	for _, u := range s.Usages {
		now[u.ID] = figuresOf(before[u.ID], m.figures[u.ID], u, elapsed, ofDisks)
	}
	m.figures = now
	m.stats = s
	for _, h := range m.history {
		h.seen = false
	}
	for _, pod := range treeOf(m.lists, m.figures) {
		for _, n := range append(pod.members, pod) {
			if m.history[n.id] == nil {
				m.history[n.id] = &history{}
			}
			m.history[n.id].add(s.At, n.figures)
		}
	}
	for id, h := range m.history {
		if !h.seen { // the row no longer exists
			delete(m.history, id)
		}
	}
}

// holdTime is how long the rows keep their order after a key in the list, unless the key sorts or ends the filter.
const holdTime = 5 * time.Second

// arrange builds the rows, and keeps the selected row on the screen.
func (m *Model) arrange() {
	at := 0
	if m.moved {
		at = slices.IndexFunc(m.rows, m.isSelected)
	}
	held := map[string]int{}
	if m.o.Now().Sub(m.touched) < holdTime { // the rows do not move under the cursor
		for _, pod := range m.tree {
			for _, n := range append([]*node{pod}, pod.members...) {
				held[n.id] = len(held)
			}
		}
	}
	m.tree = treeOf(m.lists, m.figures)
	sortTree(m.tree, m.order, m.reverse, held)
	m.rows = visible(m.tree, m.filter, m.folded)
	if now := slices.IndexFunc(m.rows, m.isSelected); m.moved && now >= 0 {
		at = now
	}
	m.choose(at)
}

func (m *Model) isSelected(n *node) bool { return n.id == m.selected }

// choose selects a row by its number.
func (m *Model) choose(at int) {
	if len(m.rows) == 0 {
		m.first = 0
		return
	}
	at = min(max(at, 0), len(m.rows)-1)
	m.selected = m.rows[at].id
	space := m.listRows()
	m.first = min(max(min(m.first, at), at-space+1), max(len(m.rows)-space, 0))
}

// current returns the selected row or nil.
func (m *Model) current() *node {
	if i := slices.IndexFunc(m.rows, m.isSelected); i >= 0 {
		return m.rows[i]
	}
	return nil
}

// move moves the selection down by the given number of rows.
func (m *Model) move(by int) { m.choose(slices.IndexFunc(m.rows, m.isSelected) + by) }
