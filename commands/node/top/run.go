package top

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

// framesPerSecond limits how often the screen is drawn, and so determines how soon it shows the effect of a key.
const framesPerSecond = 20

// rendererEnds is how long bubbletea's renderer may run after ReleaseTerminal. The renderer stops the frame ticker last.
// If the process were stopped before, the old renderer would stop the ticker after RestoreTerminal has started it again.
const rendererEnds = 50 * time.Millisecond

// Run shows the view until the user leaves it, even if the runtime stops. It restores the terminal after errors, signals
// and panics, too.
func Run(ctx context.Context, in *cli.Invocation, conn *client.Conn, filter *cli.Filter, o Options) error {
	f := newFeed(in, conn, filter)
	lists, err := f.lists(ctx) // the view starts only if the runtime answers
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	busy := new(atomic.Bool)
	o.Runtime, o.Run, o.Session = title(conn, filter), verbs(in, conn), sessions(ctx, in, conn, busy)
	o.Suspend = func() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGTSTP) }
	o.Refresh = func() { notify(f.asked) }
	o.ASCII = !unicodeLocale(in.LookupEnv)
	model := newModel(o)
	model.Update(lists)
	return drive(ctx, cancel, in, model, busy, func(ctx context.Context, send func(any)) { f.run(ctx, o.Every, send) })
}

// drive runs a model on the terminal with messages of feed.
func drive(ctx context.Context, cancel context.CancelCauseFunc, in *cli.Invocation, model tea.Model, busy *atomic.Bool, feed func(context.Context, func(any))) error {
	program := tea.NewProgram(guard{model}, tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond),
		tea.WithInput(in.In), tea.WithOutput(in.Out), tea.WithEnvironment(environment(in.LookupEnv)), tea.WithColorProfile(profile(in.Printer)))
	defer context.AfterFunc(ctx, program.Quit)() // tea.WithContext would close the terminal while bubbletea reads from it
	feeding, fed := context.WithCancel(ctx)
	done := make(chan struct{}, 2)
	guarded := func(do func()) {
		defer func() {
			if p := recover(); p != nil { // restore the terminal first, so that the trace is readable
				program.Kill()
				program.Wait()
				panic(p)
			}
			done <- struct{}{}
		}()
		do()
	}
	go guarded(func() { feed(feeding, func(message any) { program.Send(message) }) })
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGCONT)
	defer signal.Stop(signals)
	if !signal.Ignored(syscall.SIGTSTP) { // ignored in shells without job control
		signal.Notify(signals, syscall.SIGTSTP)
	}
	go guarded(func() { jobs(feeding, signals, cancel, program, busy) })
	_, err := program.Run()
	fed()
	<-done
	<-done
	switch cause := context.Cause(ctx); {
	case errors.Is(err, tea.ErrProgramPanic):
		return errors.New("the view has failed: see above")
	case errors.Is(cause, context.Canceled): // by a signal
		return cli.ErrFollowed
	case cause != nil:
		return cause
	}
	return err
}

// guard moves panics of commands to Update, where bubbletea restores the terminal before it prints the trace.
type guard struct{ tea.Model }

// panicked is the value of a panic with its trace.
type panicked string

func (g guard) Init() tea.Cmd { return guardCommand(g.Model.Init()) }

func (g guard) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	if p, ok := message.(panicked); ok {
		panic(p)
	}
	model, command := g.Model.Update(message)
	return guard{model}, guardCommand(command)
}

func guardCommand(command tea.Cmd) tea.Cmd {
	if command == nil {
		return nil
	}
	return func() (message tea.Msg) {
		defer func() {
			if p := recover(); p != nil {
				message = panicked(fmt.Sprintf("%v\n%s", p, debug.Stack()))
			}
		}()
		message = command()
		if batch, ok := message.(tea.BatchMsg); ok {
			for i := range batch {
				batch[i] = guardCommand(batch[i])
			}
		}
		return message
	}
}

// jobs restores the terminal and stops the process on SIGTSTP, and ends the view on SIGQUIT. While a session uses the
// terminal, the session handles SIGTSTP itself.
func jobs(ctx context.Context, signals <-chan os.Signal, end context.CancelCauseFunc, program *tea.Program, busy *atomic.Bool) {
	stopped := false
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			switch {
			case s == syscall.SIGQUIT:
				end(fmt.Errorf("ended by signal: %s", s))
				return
			case busy.Load():
			case s == syscall.SIGTSTP && !stopped:
				stopped = program.ReleaseTerminal() == nil
				time.Sleep(rendererEnds)
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
			case s == syscall.SIGCONT && stopped:
				stopped = false
				if err := program.RestoreTerminal(); err != nil {
					end(err)
					return
				}
			}
		}
	}
}

// Sample returns a model with two samples, for one page.
func Sample(ctx context.Context, in *cli.Invocation, conn *client.Conn, filter *cli.Filter, o Options) (*Model, error) {
	f := newFeed(in, conn, filter)
	lists, err := f.lists(ctx)
	if err != nil {
		return nil, err
	}
	o.Runtime, o.ASCII = title(conn, filter), in.OutTerminal && !unicodeLocale(in.LookupEnv)
	model := newModel(o)
	model.width = 120
	if width := in.Printer.Width(); width > 0 {
		model.width = width
	}
	model.Update(lists)
	for sample := range 2 {
		s, err := f.stats(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			in.Printer.Warn("no figures: %w", err)
			break
		}
		model.Update(s)
		if sample == 0 {
			model.Update(f.node(ctx))
			if err := cli.Sleep(ctx, cmp.Or(o.Every, firstPause)); err != nil {
				return nil, err
			}
		}
	}
	return model, nil
}

// Print writes the page of a model.
func Print(printer *cli.Printer, model *Model) error {
	out := &colorprofile.Writer{Forward: printer.Out, Profile: colorprofile.NoTTY}
	if printer.Color() {
		out.Profile = colorprofile.ANSI
	}
	_, err := io.WriteString(out, model.wholeList())
	return err
}

// unicodeLocale reports whether the locale of the user's terminal is UTF-8.
func unicodeLocale(lookup func(string) (string, bool)) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value, _ := lookup(name); value != "" {
			value = strings.ToLower(strings.ReplaceAll(value, "-", ""))
			return strings.Contains(value, "utf8")
		}
	}
	return false
}

// title names the runtime, and the namespace if there is only one.
func title(conn *client.Conn, filter *cli.Filter) string {
	text := output.Sanitize(strings.TrimSpace(conn.Version.GetRuntimeName() + " " + conn.Version.GetRuntimeVersion()))
	if filter.In.Namespace != "" {
		text += "  namespace " + filter.In.Namespace
	}
	return text
}

// profile returns no colours if the user disabled them, else the 8 colours of every terminal.
func profile(printer *cli.Printer) colorprofile.Profile {
	if printer.Color() {
		return colorprofile.ANSI
	}
	return colorprofile.ASCII
}

// environment returns the variables that the library asks for.
func environment(lookup func(string) (string, bool)) (all []string) {
	for _, name := range []string{"TERM", "TERM_PROGRAM", "SSH_TTY", "WT_SESSION", "COLUMNS", "LINES"} {
		if value, ok := lookup(name); ok {
			all = append(all, name+"="+value)
		}
	}
	return all
}

// verbs returns a function that runs a command line without input, for a page or for an action such as stop. A width of
// 0 means that the output is not a terminal.
func verbs(in *cli.Invocation, conn *client.Conn) func(context.Context, io.Writer, int, ...string) error {
	return func(ctx context.Context, out io.Writer, width int, args ...string) error {
		var errs bytes.Buffer
		own := *in.Process
		own.In, own.Out, own.Err = strings.NewReader(""), out, &errs
		own.InTerminal, own.OutTerminal, own.ErrTerminal, own.AskPassword = false, width > 0, false, nil
		own.Width = func() int { return width }
		status := in.RunLine(ctx, own, conn, args...)
		if status == 0 || ctx.Err() != nil {
			return nil
		}
		return failed(&errs, status)
	}
}

// failed returns the stderr of a command line as an error.
func failed(errs *bytes.Buffer, status int) error {
	if text := strings.TrimSpace(errs.String()); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("ended with status %d", status)
}

// session is a command line that takes over the terminal.
type session struct {
	ctx  context.Context
	in   *cli.Invocation
	conn *client.Conn
	busy *atomic.Bool
	args []string
}

func sessions(ctx context.Context, in *cli.Invocation, conn *client.Conn, busy *atomic.Bool) func(...string) tea.ExecCommand {
	return func(args ...string) tea.ExecCommand { return &session{ctx, in, conn, busy, args} }
}

// SetStdin, SetStdout and SetStderr do nothing: the command line has its own streams.
func (s *session) SetStdin(io.Reader)  {}
func (s *session) SetStdout(io.Writer) {}
func (s *session) SetStderr(io.Writer) {}

// Run runs the command line. It ignores the exit status of a command in a container.
func (s *session) Run() error {
	s.busy.Store(true)
	defer s.busy.Store(false)
	var errs bytes.Buffer
	own := *s.in.Process
	own.Err = &errs
	if status := s.in.RunLine(s.ctx, own, s.conn, s.args...); status != 0 && errs.Len() > 0 {
		return failed(&errs, status)
	}
	return nil
}
