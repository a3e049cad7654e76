package top

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/crishim/crishim/output"
)

func bind(keys, shown, what string) key.Binding {
	return key.NewBinding(key.WithKeys(strings.Fields(keys)...), key.WithHelp(shown, what))
}

// The keys, in the order in which they are shown.
var (
	keyLogs     = bind("l", "l", "logs")
	keyShell    = bind("s", "s", "shell")
	keyDescribe = bind("d", "d", "describe")
	keyWhy      = bind("w", "w", "why")
	keyStop     = bind("x", "x", "stop")
	keyFilter   = bind("/", "/", "filter")
	keyOrder    = bind("o", "o", "sort")
	keyReverse  = bind("O", "O", "reverse")
	keyFold     = bind("enter space", "↵", "fold")
	keyHelp     = bind("? h", "?", "help")
	keyQuit     = bind("q ctrl+c", "q", "quit")
	keyUp       = bind("up k", "↑", "up")
	keyDown     = bind("down j", "↓", "down")
	keyPageUp   = bind("pgup ctrl+b", "PgUp", "page up")
	keyPageDown = bind("pgdown ctrl+f", "PgDn", "page down")
	keyTop      = bind("home g", "g", "first")
	keyBottom   = bind("end G", "G", "last")
	keyOpen     = bind("right", "→", "open")
	keyClose    = bind("left", "←", "close")
	keyFoldAll  = bind("tab", "Tab", "fold all")
	keyBack     = bind("esc", "Esc", "back")
	keySuspend  = bind("ctrl+z", "Ctrl-Z", "suspend")
	keyRedraw   = bind("ctrl+l", "Ctrl-L", "redraw")
)

// ShortHelp are the keys of the last line.
func (m *Model) ShortHelp() []key.Binding {
	switch {
	case m.page != nil:
		return []key.Binding{keyBack, bind("", "↑↓", "scroll"), keyTop, keyBottom}
	case m.width >= 100:
		return []key.Binding{keyLogs, keyShell, keyDescribe, keyWhy, keyStop, keyFilter, keyOrder, keyFold, keyHelp, keyQuit}
	}
	return []key.Binding{keyLogs, keyShell, keyDescribe, keyStop, keyFilter, keyOrder, keyHelp, keyQuit}
}

// FullHelp are all keys.
func (m *Model) FullHelp() [][]key.Binding {
	return [][]key.Binding{
		{keyLogs, keyShell, keyDescribe, keyWhy, keyStop, keyFilter, keyOrder, keyReverse},
		{keyUp, keyDown, keyPageUp, keyPageDown, keyTop, keyBottom},
		{keyFold, keyOpen, keyClose, keyFoldAll, keyBack, keyRedraw, keySuspend, keyQuit},
	}
}

// press takes a key.
//
//nolint:gocyclo // one flat switch over keys
func (m *Model) press(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(k, keySuspend):
		if m.o.Suspend != nil {
			m.o.Suspend()
		}
		return nil
	case key.Matches(k, keyRedraw):
		return tea.ClearScreen
	case k.String() == "ctrl+c":
		m.page.close()
		return tea.Quit
	case m.typing != nothing:
		return m.answer(k)
	case m.page != nil:
		if key.Matches(k, keyBack) || key.Matches(k, keyQuit) || key.Matches(k, keyClose) {
			m.page.close()
			m.page = nil
			return nil
		}
		return m.page.press(k)
	}
	m.note, m.moved = "", true
	n := m.current()
	switch {
	case key.Matches(k, keyQuit):
		return tea.Quit
	case key.Matches(k, keyHelp):
		return m.open("keys", func(out io.Writer) error {
			_, err := io.WriteString(out, m.help.FullHelpView(m.FullHelp())+"\n")
			return err
		})
	case key.Matches(k, keyUp):
		m.move(-1)
	case key.Matches(k, keyDown):
		m.move(1)
	case key.Matches(k, keyPageUp):
		m.move(-m.listRows())
	case key.Matches(k, keyPageDown):
		m.move(m.listRows())
	case key.Matches(k, keyTop):
		m.choose(0)
	case key.Matches(k, keyBottom):
		m.choose(len(m.rows) - 1)
	case key.Matches(k, keyFilter):
		m.typing, m.line = aFilter, m.filter
	case key.Matches(k, keyBack):
		m.filter = ""
	case key.Matches(k, keyOrder):
		m.order = (m.order + 1) % len(orders)
	case key.Matches(k, keyReverse):
		m.reverse = !m.reverse
	case key.Matches(k, keyFoldAll):
		m.foldAll()
	case n == nil:
	case key.Matches(k, keyFold):
		m.fold(n, !m.folded[n.pod])
	case key.Matches(k, keyOpen):
		m.fold(n, false)
	case key.Matches(k, keyClose):
		m.fold(n, true)
	default:
		return m.act(k, n)
	}
	return nil
}

// fold hides the containers of a pod, which is selected then, or shows them.
func (m *Model) fold(n *node, folded bool) {
	m.folded[n.pod] = folded
	if folded {
		m.selected = n.pod
	}
}

// foldAll folds all pods, or opens them where all are folded.
func (m *Model) foldAll() {
	open := func(n *node) bool { return !m.folded[n.id] }
	fold := slices.ContainsFunc(m.tree, open)
	for _, pod := range m.tree {
		m.folded[pod.id] = fold
	}
	if n := m.current(); n != nil && fold {
		m.selected = n.pod
	}
}

// container is the container that a verb is for: of a pod the first that runs, else its first.
func (n *node) container() *node {
	if !n.isPod() {
		return n
	}
	if i := slices.IndexFunc(n.members, func(c *node) bool { return c.running }); i >= 0 {
		return n.members[i]
	}
	if len(n.members) > 0 {
		return n.members[0]
	}
	return nil
}

// act runs a verb on a row.
func (m *Model) act(k tea.KeyPressMsg, n *node) tea.Cmd {
	c := n.container()
	switch {
	case key.Matches(k, keyStop):
		m.typing = yesToStop
	case key.Matches(k, keyDescribe):
		return m.verb("describe "+n.name(), m.width, "describe", n.pod)
	case key.Matches(k, keyWhy):
		return m.verb("why "+n.name(), m.width, "why", n.id)
	case c == nil && (key.Matches(k, keyLogs) || key.Matches(k, keyShell)):
		m.note = n.name() + " has no container"
	case key.Matches(k, keyLogs):
		return m.verb("logs "+c.name(), 0, "logs", "--follow-restarts", "--tail", fmt.Sprint(pageLines), c.id)
	case key.Matches(k, keyShell) && !c.running:
		m.note = c.name() + " is not running"
	case key.Matches(k, keyShell):
		return tea.Exec(m.o.Session("exec", "--stdin", "--tty", c.id), func(err error) tea.Msg {
			if err != nil {
				return acted{"shell: " + oneLine(err.Error())}
			}
			return acted{}
		})
	}
	return nil
}

// answer takes a key of what is typed into the last line.
func (m *Model) answer(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case m.typing == yesToStop:
		m.typing = nothing
		if n := m.current(); n != nil && (k.String() == "y" || k.String() == "Y") {
			return m.stop(n)
		}
		m.note = "not stopped"
	case k.String() == "esc":
		m.typing, m.filter = nothing, ""
	case k.String() == "enter":
		m.typing = nothing
	case k.String() == "backspace":
		line := []rune(m.line)
		m.typed("")
		m.line = string(line[:max(len(line)-1, 0)])
	case k.String() == "ctrl+u":
		m.line = ""
	case (key.Matches(k, keyUp) || key.Matches(k, keyDown)) && k.Text == "":
		m.move(map[bool]int{true: -1, false: 1}[key.Matches(k, keyUp)])
	default:
		m.typed(k.Text)
	}
	if m.typing == aFilter {
		m.filter = m.line
	}
	return nil
}

// typed adds to the last line.
func (m *Model) typed(text string) {
	m.line += output.Sanitize(strings.TrimRight(text, "\r\n"))
	if m.typing == aFilter {
		m.filter = m.line
	}
}

// stop stops a pod or a container, after the user has said yes.
func (m *Model) stop(n *node) tea.Cmd {
	verb := "stop"
	if n.isPod() {
		verb = "stopp"
	}
	name := n.name()
	m.note = "stopping " + name
	return func() tea.Msg {
		var said strings.Builder
		if err := m.o.Run(context.Background(), &said, 0, verb, n.id); err != nil {
			return acted{"stop: " + oneLine(said.String()+err.Error())}
		}
		return acted{name + " is stopped"}
	}
}

// oneLine is the first line of a text that is for the last line.
func oneLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return output.Sanitize(strings.TrimPrefix(line, "crishim: "))
}
