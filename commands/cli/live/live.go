// Package live redraws text in place on a terminal: pages of stats --watch, the progress of pulls. It reads no keys,
// sets no mode of the terminal and keeps the cursor visible, so that a killed or stopped process leaves nothing to
// restore. Full-screen output is in commands/node/top.
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

// Display is a text on a terminal that is redrawn in place, until Close or Erase.
type Display struct {
	program *tea.Program
	out     *checked
	ended   chan struct{}
}

// The size of a terminal that does not report its size.
const (
	usualWidth  = 80
	usualHeight = 24
)

// Start begins to draw at the line of the cursor. A terminal reports its own size; any other writer has width columns.
func Start(out io.Writer, width int) *Display {
	d := &Display{out: &checked{Writer: out}, ended: make(chan struct{})}
	d.program = tea.NewProgram(&model{height: usualHeight},
		tea.WithInput(nil), tea.WithOutput(d.out), tea.WithoutSignalHandler(), tea.WithEnvironment([]string{}),
		tea.WithColorProfile(colorprofile.ANSI), // the caller decides on the colours of the text
		tea.WithWindowSize(cmp.Or(width, usualWidth), usualHeight))
	go func() {
		defer close(d.ended)
		_, err := d.program.Run()
		d.out.note(err)
	}()
	return d
}

// Show draws whole lines. It cuts lines that are too wide for the terminal, and drops the last lines if there are too
// many. Lines are drawn asynchronously, so Show returns the first error of earlier writes.
func (d *Display) Show(lines string) error {
	d.program.Send(text(lines))
	if err := d.out.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends the display and leaves the last text on the terminal. Nothing is written after it.
func (d *Display) Close() {
	d.program.Quit()
	<-d.ended
}

// Erase removes the text and ends the display.
func (d *Display) Erase() {
	_ = d.Show("")
	d.Close()
}

// checked is the writer to the terminal. It keeps the first write error, because bubbletea drops write errors.
type checked struct {
	io.Writer
	err atomic.Pointer[error]
}

func (c *checked) note(err error) {
	if err != nil {
		c.err.CompareAndSwap(nil, &err)
	}
}

// Write, Read, Close and Fd make checked a terminal for bubbletea, which then queries the size of the terminal.
//
// Write returns the cursor to the first column before each drawing, because keys that the terminal echoes may have
// moved the cursor.
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

// text is the message that replaces the model's text.
type text string

type model struct {
	text   string
	height int
}

// Init does nothing: Show sends the text.
func (m *model) Init() tea.Cmd { return nil }

// Update handles a text or the size of the terminal.
func (m *model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := message.(type) {
	case text:
		m.text = string(msg)
	case tea.WindowSizeMsg:
		m.height = msg.Height
	}
	return m, nil
}

// asItIs leaves the cursor's shape unchanged.
const asItIs tea.CursorShape = -1

// View returns the lines, with the cursor in the empty line below them.
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
