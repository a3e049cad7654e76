package top

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/crishim/crishim/output"
)

// Styles use the first 8 colours, which the user's terminal theme defines.
var (
	strong   = lipgloss.NewStyle().Bold(true)
	dim      = lipgloss.NewStyle().Faint(true)
	marked   = lipgloss.NewStyle().Reverse(true)
	warning  = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	plotted  = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
	ofTone   = map[output.Tone]lipgloss.Style{output.Good: lipgloss.NewStyle().Foreground(lipgloss.Green), output.Warn: warning, output.Bad: lipgloss.NewStyle().Foreground(lipgloss.Red), output.Faint: dim}
	noColour = lipgloss.NewStyle()
)

// The screen has, from top to bottom: lines about the node, column names, rows, plots, the last line.
const (
	aboutLines = 2
	listTop    = aboutLines + 1
	lastLines  = 1
)

// plotRows returns the height of a plot; 0 if the screen is too low for plots.
func (m *Model) plotRows() int {
	switch {
	case m.height >= 45:
		return 6
	case m.height >= 18:
		return 3
	}
	return 0
}

// plotLines returns the height of the plots with their titles.
func (m *Model) plotLines() int {
	if m.plotRows() == 0 {
		return 0
	}
	return 2 + m.plotRows()
}

func (m *Model) listRows() int {
	return max(m.height-listTop-m.plotLines()-lastLines, 1)
}

func (m *Model) pageRows() int { return max(m.height-1-lastLines, 1) }

// View draws the screen.
func (m *Model) View() tea.View {
	var lines []string
	if m.page != nil {
		lines = append(lines, strong.Render(fit(m.page.heading(), m.width)))
		lines = append(lines, strings.Split(m.page.view.View(), "\n")...)
	} else {
		lines = append(lines, m.about()...)
		lines = append(lines, m.table(m.first, min(m.first+m.listRows(), len(m.rows)))...)
		for len(lines) < listTop+m.listRows() {
			lines = append(lines, "")
		}
		lines = append(lines, m.plots()...)
	}
	lines = append(lines, m.lastLine())
	v := tea.NewView(m.drawable(strings.Join(lines, "\n")))
	v.AltScreen = true
	v.WindowTitle = "crishim top"
	return v
}

// plain has the ASCII replacements of the characters that the view draws with.
var plain = map[rune]rune{'▾': 'v', '▸': '>', '─': '-', '…': '~', '▏': '_', '↵': '^', '▁': '.', '▂': '.', '▃': ':', '▄': ':', '▅': '|', '▆': '|', '▇': '#', '█': '#'}

// drawable returns text for a terminal whose locale may not have UTF-8. Other characters become question marks.
func (m *Model) drawable(text string) string {
	if !m.o.ASCII {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch as := plain[r]; {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		case as != 0:
			out.WriteRune(as)
		default:
			out.WriteString(strings.Repeat("?", ansi.StringWidth(string(r))))
		}
	}
	return out.String()
}

// wholeList returns the whole list for other programs, without a selection or a limit on rows.
func (m *Model) wholeList() string {
	selected := m.selected
	m.selected = ""
	defer func() { m.selected = selected }()
	return m.drawable(strings.Join(append(m.about(), m.table(0, len(m.rows))...), "\n") + "\n")
}

// about returns the lines about the node and the view.
func (m *Model) about() []string {
	pods, containers, running := len(m.tree), 0, 0
	for _, pod := range m.tree {
		for _, c := range pod.members {
			containers++
			if c.running {
				running++
			}
		}
	}
	order := orders[m.order].name
	if m.reverse {
		order += " reversed"
	}
	shown := fmt.Sprintf("%s  %s  %d of %s run  sort %s", m.o.Runtime, output.Count(pods, "pod"), running, output.Count(containers, "container"), order)
	if m.filter != "" {
		shown += "  filter " + m.filter
	}
	second := fit(shown, m.width)
	switch {
	case m.lost != "":
		second = ofTone[output.Bad].Render(fit("no answer, trying again: "+m.lost, m.width))
	case m.stats.Err != "":
		second = warning.Render(fit("no figures: "+m.stats.Err, m.width))
	}
	return []string{strong.Render(fit(m.node.line(m.width), m.width)), second}
}

// column is a column of the list.
type column struct {
	title string
	width int
	from  int // minimum width of the terminal
	until int // width from which it is hidden; 0: never
	left  bool
	value func(*node) string
}

// columns are to the right of the name. Narrow terminals show network and disk rates as a sum, wide terminals show each
// direction.
var columns = []column{
	{title: "STATE", width: 12, until: 110, left: true, value: func(n *node) string { return n.look.State }},
	{title: "STATE", width: 30, from: 110, left: true, value: func(n *node) string { return n.look.State }},
	{title: "RST", width: 3, until: 110, value: func(n *node) string { return fmt.Sprint(n.look.Restarts) }},
	{title: "RESTARTS", width: 8, from: 110, value: func(n *node) string { return fmt.Sprint(n.look.Restarts) }},
	{title: "CPU %", width: 6, value: func(n *node) string { return percent(n.figures.cpu) }},
	{title: "MEM", width: 7, value: func(n *node) string { return output.Bytes(n.figures.memory) }},
	{title: "LIMIT", width: 7, from: 100, value: func(n *node) string { return output.Bytes(limit(n)) }},
	{title: "MEM%", width: 5, from: 60, value: func(n *node) string {
		if limit(n) <= 0 || n.figures.memory < 0 {
			return "-"
		}
		return percent(100 * float64(n.figures.memory) / float64(limit(n)))
	}},
	{title: "NET/s", width: 7, from: 70, until: 125, value: func(n *node) string { return network(n, n.figures.net()) }},
	{title: "NET IN/s", width: 8, from: 125, value: func(n *node) string { return network(n, n.figures.netIn) }},
	{title: "OUT/s", width: 7, from: 125, value: func(n *node) string { return network(n, n.figures.netOut) }},
	{title: "DISK/s", width: 7, from: 78, until: 125, value: func(n *node) string { return speed(n.figures.disk()) }},
	{title: "READ/s", width: 7, from: 125, value: func(n *node) string { return speed(n.figures.reads) }},
	{title: "WRITE/s", width: 7, from: 125, value: func(n *node) string { return speed(n.figures.writes) }},
	{title: "PIDS", width: 5, from: 135, value: func(n *node) string {
		if n.figures.pids < 0 {
			return "-"
		}
		return fmt.Sprint(n.figures.pids)
	}},
	{title: "AGE", width: 6, from: 145, value: func(n *node) string { return n.look.Age }},
	{title: "IMAGE", width: 30, from: 180, left: true, value: func(n *node) string { return n.look.Image }},
}

func percent(v float64) string {
	if v < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}

func speed(v float64) string { return output.Bytes(int64(v)) }

// network formats a network figure, which only pods have: their containers share it.
func network(n *node, v float64) string {
	if !n.isPod() {
		return ""
	}
	return speed(v)
}

// limit returns the memory limit of a row, or -1 without a limit.
func limit(n *node) int64 {
	if n.figures.limit == 0 {
		return unknown
	}
	return n.figures.limit
}

// table returns the column names and a range of rows.
func (m *Model) table(from, to int) []string {
	var shown []column
	rest := m.width
	for _, c := range columns {
		if m.width >= c.from && (c.until == 0 || m.width < c.until) {
			shown = append(shown, c)
			rest -= c.width + 1
		}
	}
	rest = max(rest, 10)
	title := pad("POD / CONTAINER", rest, true)
	for _, c := range shown {
		title += " " + pad(c.title, c.width, c.left)
	}
	lines := []string{strong.Render(fit(title, m.width))}
	for _, n := range m.rows[from:to] {
		lines = append(lines, m.row(n, shown, rest))
	}
	if len(m.rows) == 0 {
		lines = append(lines, dim.Render(fit(m.emptyWord(), m.width)))
	}
	return lines
}

func (m *Model) emptyWord() string {
	switch {
	case !m.listed:
		return "asking the runtime"
	case m.filter != "":
		return "nothing matches the filter; Esc ends it"
	}
	return "no pods"
}

// row is one line of the list.
func (m *Model) row(n *node, shown []column, nameWidth int) string {
	name := "  " + n.look.Name
	if n.isPod() {
		mark := "▾ "
		if m.folded[n.id] && m.filter == "" {
			mark = "▸ "
		}
		if len(n.members) == 0 {
			mark = "  "
		}
		name = mark + n.name()
	} else {
		name = "  " + name
	}
	var line strings.Builder
	selected := n.id == m.selected
	style := func(s lipgloss.Style, text string) string {
		if selected { // one style for the whole row
			return text
		}
		return s.Render(text)
	}
	whole := noColour
	if n.isPod() {
		whole = strong
	}
	line.WriteString(style(whole, pad(name, nameWidth, true)))
	for _, c := range shown {
		text := pad(c.value(n), c.width, c.left)
		if c.title == "STATE" {
			text = style(ofTone[n.look.Tone], text)
		}
		line.WriteString(" " + text)
	}
	if selected {
		return marked.Render(fit(line.String(), m.width))
	}
	return ansi.Truncate(line.String(), m.width, "")
}

// wideTitle is the minimum width of a plot whose title has the maximum.
const wideTitle = 30

// plots draws the history of the selected row.
func (m *Model) plots() []string {
	height := m.plotRows()
	if height == 0 {
		return nil
	}
	n := m.current()
	if n == nil {
		return make([]string, 2+height)
	}
	kinds := []struct {
		title string
		value func(point) float32
		scale func(float64) string
	}{
		{"cpu " + percent(n.figures.cpu) + "%", func(p point) float32 { return p.cpu }, func(v float64) string { return percent(v) + "%" }},
		{"memory " + output.Bytes(n.figures.memory), func(p point) float32 { return p.memory }, speed},
		{"net " + speed(n.figures.net()) + "/s", func(p point) float32 { return p.net }, func(v float64) string { return speed(v) + "/s" }},
		{"disk " + speed(n.figures.disk()) + "/s", func(p point) float32 { return p.disk }, func(v float64) string { return speed(v) + "/s" }},
	}
	width := (m.width - 3*2) / len(kinds)
	h := m.history[n.id]
	titles, rows := make([]string, 0, len(kinds)), make([][]string, height)
	for _, k := range kinds {
		drawn, top := plot(h, k.value, width, height)
		if width >= wideTitle {
			k.title += ", most " + k.scale(top)
		}
		titles = append(titles, pad(k.title, width, true))
		for i, row := range drawn {
			rows[i] = append(rows[i], row)
		}
	}
	ruler := fmt.Sprintf("── %s, last %s ", n.name(), duration.HumanDuration(h.span()))
	lines := []string{dim.Render(fit(ruler+strings.Repeat("─", max(m.width-ansi.StringWidth(ruler), 0)), m.width)), fit(strings.Join(titles, "  "), m.width)}
	for _, row := range rows {
		lines = append(lines, plotted.Render(fit(strings.Join(row, "  "), m.width)))
	}
	return lines
}

// lastLine returns the filter or search that the user types, the question, the last result, or the keys.
func (m *Model) lastLine() string {
	switch {
	case m.typing == aFilter:
		return strong.Render(fit("filter: "+m.line+"▏", m.width))
	case m.typing == aSearch:
		return strong.Render(fit("search: "+m.line+"▏", m.width))
	case m.typing == aQuestion:
		return warning.Render(fit(m.question.word+" "+m.question.name+"? y/n", m.width))
	case m.note != "":
		return warning.Render(fit(m.note, m.width))
	}
	return fit(m.help.ShortHelpView(m.ShortHelp()), m.width)
}

// Rows returns the pods with their containers, for programs.
func (m *Model) Rows() []output.TopRow {
	pods := []output.TopRow{}
	for _, pod := range m.tree {
		row := pod.document()
		row.Received, row.Sent = known(pod.figures.netIn), known(pod.figures.netOut)
		for _, c := range pod.members {
			row.Containers = append(row.Containers, c.document())
		}
		pods = append(pods, row)
	}
	return pods
}

func (n *node) document() output.TopRow {
	f := n.figures
	state, _, _ := strings.Cut(n.look.State, " ") // without the exit status, the age and the time of the next start
	row := output.TopRow{
		Namespace: n.look.Namespace, Name: cmp.Or(n.look.Name, n.look.Pod), ID: n.id, State: strings.TrimSuffix(state, ","), Restarts: n.look.Restarts,
		CPUPercent: known(f.cpu), Memory: known(f.memory), MemoryLimit: known(limit(n)), Processes: known(f.pids), Read: known(f.reads), Written: known(f.writes),
	}
	if !n.isPod() {
		row.Namespace = ""
	}
	return row
}

// known returns nil for an unknown figure.
func known[N int64 | float64](n N) *N {
	if n < 0 {
		return nil
	}
	return &n
}

// fit truncates a line.
func fit(text string, width int) string { return ansi.Truncate(text, width, "…") }

// pad truncates or pads a cell to the width of its column. left aligns the text to the left.
func pad(text string, width int, left bool) string {
	text = fit(text, width)
	space := strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
	if left {
		return text + space
	}
	return space + text
}
