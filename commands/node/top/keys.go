package top

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

func bind(keys, shown, what string) key.Binding {
	return key.NewBinding(key.WithKeys(strings.Fields(keys)...), key.WithHelp(shown, what))
}

// Keys of the list and of pages. In a page, /, w and p have another meaning than in the list. ShortHelp and FullHelp
// define the order of the help.
var (
	keyLogs     = bind("l", "l", "logs")
	keyShell    = bind("s", "s", "shell")
	keyDescribe = bind("d", "d", "describe")
	keyWhy      = bind("w", "w", "why")
	keyStop     = bind("x", "x", "stop")
	keyRestart  = bind("r", "r", "restart")
	keyPause    = bind("p", "p", "pause")
	keyDelete   = bind("D delete", "D", "delete")
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
	keySearch   = bind("/", "/", "search")
	keyNext     = bind("n", "n", "next")
	keyBefore   = bind("N", "N", "before")
	keyWrap     = bind("w", "w", "wrap")
	keyPrevious = bind("p", "p", "previous")
)

// ShortHelp returns the keys of the last line.
func (m *Model) ShortHelp() []key.Binding {
	switch {
	case m.page != nil && m.page.container != nil:
		return []key.Binding{keyBack, keySearch, keyNext, keyBefore, keyWrap, keyPrevious, keyTop, keyBottom}
	case m.page != nil:
		return []key.Binding{keyBack, keySearch, keyNext, keyBefore, keyWrap, keyTop, keyBottom}
	case m.width >= 100:
		return []key.Binding{keyLogs, keyShell, keyDescribe, keyWhy, keyStop, keyFilter, keyOrder, keyFold, keyHelp, keyQuit}
	}
	return []key.Binding{keyLogs, keyShell, keyDescribe, keyStop, keyFilter, keyOrder, keyHelp, keyQuit}
}

// FullHelp returns all keys except keyHelp, which opens this help.
func (m *Model) FullHelp() [][]key.Binding {
	return [][]key.Binding{
		{keyLogs, keyShell, keyDescribe, keyWhy, keyStop, keyRestart, keyPause, keyDelete},
		{keyUp, keyDown, keyPageUp, keyPageDown, keyTop, keyBottom, keyFilter, keyOrder, keyReverse},
		{keyFold, keyOpen, keyClose, keyFoldAll, keyBack, keyRedraw, keySuspend, keyQuit},
		{keySearch, keyNext, keyBefore, keyWrap, keyPrevious},
	}
}

// press handles a key.
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
		return m.pressInPage(k)
	}
	m.note, m.moved, m.touched = "", true, m.o.Now()
	n := m.current()
	switch {
	case key.Matches(k, keyQuit):
		return tea.Quit
	case key.Matches(k, keyHelp):
		return m.open("keys", func(out io.Writer) error {
			_, err := io.WriteString(out, m.help.FullHelpView(m.FullHelp())+"\n\npressure (psi): how much of the last 10 s some process waited for cpu/mem/io\n")
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
		m.filter, m.touched = "", time.Time{}
	case key.Matches(k, keyOrder):
		m.order, m.touched = (m.order+1)%len(orders), time.Time{}
	case key.Matches(k, keyReverse):
		m.reverse, m.touched = !m.reverse, time.Time{}
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

// fold hides or shows the containers of a pod. If it hides them, it selects the pod.
func (m *Model) fold(n *node, folded bool) {
	m.folded[n.pod] = folded
	if folded {
		m.selected = n.pod
	}
}

// foldAll folds all pods, or unfolds them if all are folded.
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

// container returns the container for a verb. For a pod it is the first running container, else the first.
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

// act runs the verb of a key on a row. Stop, restart, pause and delete first ask for confirmation.
func (m *Model) act(k tea.KeyPressMsg, n *node) tea.Cmd {
	c := n.container()
	switch {
	case key.Matches(k, keyStop, keyRestart, keyPause, keyDelete):
		m.ask(k, n)
	case key.Matches(k, keyDescribe):
		return m.verb("describe "+n.name(), m.width, "describe", n.pod)
	case key.Matches(k, keyWhy):
		return m.verb("why "+n.name(), m.width, "why", n.id)
	case c == nil && (key.Matches(k, keyLogs) || key.Matches(k, keyShell)):
		m.note = n.name() + " has no container"
	case key.Matches(k, keyLogs):
		return m.logs(c, false)
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

// ask asks for confirmation of an action on a row. Verbs without pod targets get the running containers of the pod.
func (m *Model) ask(k tea.KeyPressMsg, n *node) {
	var running []string
	paused := false
	for _, c := range append(slices.Clone(n.members), n) {
		if c.running && !c.isPod() {
			running = append(running, c.id)
			paused = paused || c.look.State == kube.Paused
		}
	}
	q := question{name: n.name()}
	switch {
	case key.Matches(k, keyStop) && n.isPod():
		q.word, q.done, q.args = "stop", "stopped", []string{"stopp", n.id}
	case key.Matches(k, keyStop):
		q.word, q.done, q.args = "stop", "stopped", []string{"stop", n.id}
	case key.Matches(k, keyDelete) && n.isPod():
		q.word, q.done, q.args = "delete", "deleted", []string{"rmp", "--force", n.id}
	case key.Matches(k, keyDelete):
		q.word, q.done, q.args = "delete", "deleted", []string{"rm", "--force", n.id}
	case running == nil:
		m.note = q.name + " is not running"
		return
	case key.Matches(k, keyRestart):
		q.word, q.done, q.args = "restart", "restarted", append([]string{"restart"}, running...)
	case paused:
		q.word, q.done, q.args = "unpause", "unpaused", append([]string{"unpause"}, running...)
	default:
		q.word, q.done, q.args = "pause", "paused", append([]string{"pause"}, running...)
	}
	m.typing, m.question = aQuestion, q
}

// answer handles a key while the last line has input.
func (m *Model) answer(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case m.typing == aQuestion:
		m.typing = nothing
		if k.String() == "y" || k.String() == "Y" {
			return m.do(m.question)
		}
		m.note = "not " + m.question.done
	case k.String() == "esc":
		m.typing, m.line = nothing, ""
		if m.page == nil {
			m.filter = ""
		}
	case k.String() == "enter":
		if m.typing == aSearch {
			m.page.search, m.page.at = m.line, 0
			m.note = m.page.next(-1) // from the newest line
		}
		m.typing = nothing
	case k.String() == "backspace":
		line := []rune(m.line)
		m.line = string(line[:max(len(line)-1, 0)])
	case k.String() == "ctrl+u":
		m.line = ""
	case m.typing == aFilter && (key.Matches(k, keyUp) || key.Matches(k, keyDown)) && k.Text == "":
		m.move(map[bool]int{true: -1, false: 1}[key.Matches(k, keyUp)])
	default:
		m.typed(k.Text)
	}
	if m.typing == aFilter {
		m.filter = m.line
	}
	return nil
}

// typed appends to the input.
func (m *Model) typed(text string) {
	m.line += output.Sanitize(strings.TrimRight(text, "\r\n"))
	if m.typing == aFilter {
		m.filter = m.line
	}
}

// do runs a verb after confirmation.
func (m *Model) do(q question) tea.Cmd {
	m.note = q.word + " " + q.name + " ..."
	return func() tea.Msg {
		var said strings.Builder
		if err := m.o.Run(context.Background(), &said, 0, q.args...); err != nil {
			return acted{q.word + ": " + oneLine(said.String()+err.Error())}
		}
		return acted{q.name + " is " + q.done}
	}
}

// oneLine returns the first line of a text, for the last line of the screen.
func oneLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return output.Sanitize(strings.TrimPrefix(line, "crishim: "))
}
