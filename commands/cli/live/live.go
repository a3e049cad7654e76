// Package live draws text on a terminal in the place of what it drew before: pages of stats --watch, the progress of
// pulls. It reads no keys, changes no mode of the terminal and leaves the cursor where it is seen, so that nothing is to
// be restored whatever ends or stops the process. What takes the whole screen is in commands/node/top.
package live

import (
	"cmp"
	"io"
	"os"
	"strings"
	"sync/atomic"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// Display is a text on a terminal, until Close or Erase.
type Display struct {
	program *tea.Program
	out     *checked
	ended   chan struct{}
}

// The size of a terminal that does not tell its own.
const (
	usualWidth  = 80
	usualHeight = 24
)

// Start begins to draw at the line of the cursor. A terminal is asked for its size, others have that width.
func Start(out io.Writer, width int) *Display {
	d := &Display{out: &checked{Writer: out}, ended: make(chan struct{})}
	d.program = tea.NewProgram(&model{height: usualHeight},
		tea.WithInput(nil), tea.WithOutput(d.out), tea.WithoutSignalHandler(), tea.WithEnvironment([]string{}),
		tea.WithColorProfile(colorprofile.ANSI), // which colours there are is decided by who has made the text
		tea.WithWindowSize(cmp.Or(width, usualWidth), usualHeight))
	go func() {
		defer close(d.ended)
		_, err := d.program.Run()
		d.out.note(err)
	}()
	return d
}

// Show draws whole lines. Those too long for the terminal are cut, and those too many, at the end. The error is that of
// an earlier text.
func (d *Display) Show(lines string) error {
	d.program.Send(text(lines))
	if err := d.out.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close leaves the last text where it is. Nothing is written after it.
func (d *Display) Close() {
	d.program.Quit()
	<-d.ended
}

// Erase takes the text away.
func (d *Display) Erase() {
	_ = d.Show("")
	d.Close()
}

// checked is a terminal that keeps the first error, which the library drops.
type checked struct {
	io.Writer
	err atomic.Pointer[error]
}

func (c *checked) note(err error) {
	if err != nil {
		c.err.CompareAndSwap(nil, &err)
	}
}

// Write, Read, Close and Fd make it a file, which the library asks for the size of the terminal.
//
// Between two drawings the cursor is in the first column, where what the terminal echoes has moved it from.
func (c *checked) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(append([]byte("\r"), b...))
	c.note(err)
	return max(n-1, 0), err
}

func (c *checked) Read([]byte) (int, error) { return 0, io.EOF }
func (c *checked) Close() error             { return nil }

func (c *checked) Fd() uintptr {
	if f, ok := c.Writer.(*os.File); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// text is a message to the model.
type text string

type model struct {
	text   string
	height int
}

// Init starts nothing: Show sends what there is.
func (m *model) Init() tea.Cmd { return nil }

// Update takes a text or the size of the terminal.
func (m *model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := message.(type) {
	case text:
		m.text = string(msg)
	case tea.WindowSizeMsg:
		m.height = msg.Height
	}
	return m, nil
}

// asItIs is the cursor's shape that changes nothing.
const asItIs tea.CursorShape = -1

// View returns the lines, and below them the one that the cursor is in.
func (m *model) View() tea.View {
	lines := strings.Split(m.text, "\n")
	if last := max(m.height-1, 0); len(lines)-1 > last {
		lines = append(lines[:last:last], "")
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.Cursor = &tea.Cursor{Position: tea.Position{Y: len(lines) - 1}, Shape: asItIs}
	v.DisableBracketedPasteMode = true
	return v
}
