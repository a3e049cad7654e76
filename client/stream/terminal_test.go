package stream

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/crishim/crishim/internal/test"
)

// shell is a fake interactive command. It prints a greeting, records its input and ends on EOF or when x is typed.
type shell struct {
	input test.Buffer
	sizes chan remotecommand.TerminalSize
}

func newShell(t *testing.T) (*shell, *container) {
	t.Helper()
	sh := &shell{sizes: make(chan remotecommand.TerminalSize, 100)}
	return sh, (&container{run: sh.run}).start(t)
}

func (sh *shell) run(p process) error {
	if p.Resize != nil {
		go func() {
			for s := range p.Resize {
				sh.sizes <- s
			}
		}()
	}
	fmt.Fprint(p.Out, "hello")
	buf := make([]byte, 100)
	for {
		n, err := p.In.Read(buf)
		_, _ = sh.input.Write(buf[:n])
		if bytes.Contains(buf[:n], []byte("x")) {
			return exit(5)
		}
		if err != nil {
			return nil
		}
	}
}

func (sh *shell) nextSize(t *testing.T, rows, cols uint16) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case s := <-sh.sizes:
			if s.Height == rows && s.Width == cols {
				return
			}
		case <-timeout:
			t.Fatalf("the size %dx%d never arrived", rows, cols)
		}
	}
}

func startShell(t *testing.T, env ...string) (*shell, *terminalSession) {
	t.Helper()
	sh, c := newShell(t)
	x := startOnTerminal(t, c.execURL(t, Streams{In: os.Stdin, Out: os.Stdout, TTY: true}), env...)
	test.Until(t, "hello on the screen", func() bool { return strings.Contains(x.screen.String(), "hello") })
	return sh, x
}

func TestTerminalIsRawAndRestored(t *testing.T) {
	sh, x := startShell(t)
	if !x.raw() {
		t.Error("the terminal is not in raw mode")
	}
	x.typed("a\x03\x1a\x04") // Ctrl-C, Ctrl-Z and Ctrl-D go to the remote side
	test.Until(t, "control keys reach the process", func() bool { return sh.input.String() == "a\x03\x1a\x04" })
	x.typed("x")
	x.ends("ended: command ended with status 5")
}

func TestTerminalSize(t *testing.T) {
	sh, x := startShell(t)
	select {
	case s := <-sh.sizes:
		if s.Height != 30 || s.Width != 100 {
			t.Errorf("the first size is %+v, want 30x100", s)
		}
	case <-time.After(patience):
		t.Fatal("no size arrived")
	}
	x.setSize(40, 120) // the kernel sends SIGWINCH
	sh.nextSize(t, 40, 120)
	x.typed("x")
	x.ends("status 5")
}

func TestTerminalDetach(t *testing.T) {
	sh, x := startShell(t)
	x.typed("ab\x10")
	test.Until(t, "keys before the sequence", func() bool { return sh.input.String() == "ab" })
	x.typed("c\x10") // not the detach sequence: both keys arrive later
	test.Until(t, "a key that only began the sequence", func() bool { return sh.input.String() == "ab\x10c" })
	x.typed("\x11")
	x.ends("ended: detached")
}

func TestTerminalSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			_, x := startShell(t)
			x.signal(sig)
			x.ends("ended by signal: " + sig.String())
			if code := x.cmd.ProcessState.ExitCode(); code != 128+int(sig) {
				t.Errorf("got exit status %d", code)
			}
		})
	}
}

func TestTerminalStopAndContinue(t *testing.T) {
	sh, x := startShell(t)
	sh.nextSize(t, 30, 100)
	x.signal(syscall.SIGTSTP)
	test.Until(t, "the process stops", func() bool { return x.state() == "T" })
	if got := x.termios(); got != x.before {
		t.Error("a stopped session keeps the terminal")
	}
	x.setSize(50, 150)
	x.signal(syscall.SIGCONT)
	test.Until(t, "raw mode again", x.raw)
	sh.nextSize(t, 50, 150)
	x.typed("x")
	x.ends("status 5")
}

// The session is a job of an interactive shell. While it is stopped the shell owns the terminal; in the foreground the
// session owns it again.
func TestTerminalShellJob(t *testing.T) {
	sh, c := newShell(t)
	cmd := exec.Command("sh", "-i")
	cmd.Env = append(os.Environ(), "PS1=prompt> ", "ENV=", "HISTFILE=", "TESTBIN="+os.Args[0],
		"TESTURL="+c.execURL(t, Streams{In: os.Stdin, Out: os.Stdout, TTY: true}))
	x := onTerminal(t, cmd)
	screen := func(want string) {
		t.Helper()
		test.Until(t, want+" on the screen", func() bool { return strings.Contains(x.screen.String(), want) })
	}
	// The screen also echoes the typed text, so the expected answers must differ from the commands.
	x.typed("sh -c 'echo pid=$$; " + helperURL + `=$TESTURL exec "$TESTBIN"'` + "\n")
	screen("hello")
	_, text, _ := strings.Cut(x.screen.String(), "\npid=")
	pid := 0
	if _, err := fmt.Sscan(text, &pid); err != nil {
		t.Fatalf("no process id on the screen: %q", x.screen.String())
	}
	sh.nextSize(t, 30, 100)
	test.Until(t, "raw mode", x.raw)

	if err := syscall.Kill(pid, syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "the session stops", func() bool { return stateOf(pid) == "T" })
	x.typed("echo 'the shell 'answers\n")
	screen("the shell answers")
	if x.raw() {
		t.Error("the shell got the terminal in raw mode")
	}
	x.setSize(50, 150)
	x.typed("fg\n")
	test.Until(t, "raw mode again", x.raw)
	sh.nextSize(t, 50, 150)
	x.typed("ax")
	test.Until(t, "the status", func() bool { return strings.Contains(x.stderr.String(), "status 5") })
	test.Until(t, "keys of after the stop", func() bool { return strings.HasSuffix(sh.input.String(), "ax") })
	x.typed("echo 'and answers 'again\n")
	screen("and answers again")
	x.typed("exit\n")
	x.ends("status 5")
}

func TestTerminalConnectionLost(t *testing.T) {
	_, c := newShell(t)
	network, u := test.ProxyURL(t, c.execURL(t, Streams{In: os.Stdin, Out: os.Stdout, TTY: true}))
	x := startOnTerminal(t, u)
	test.Until(t, "hello on the screen", func() bool { return strings.Contains(x.screen.String(), "hello") })
	network.Cut()
	x.ends(errNoStatus.Error())
}

// A SIGCONT during teardown changes nothing.
func TestTerminalContinuedAfterTheEnd(t *testing.T) {
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer tty.Close()
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	terminal := &terminal{fd: tty.Fd(), typing: true}
	if err := terminal.raw(); err != nil {
		t.Fatal(err)
	}
	terminal.end()
	if err := terminal.raw(); err != nil {
		t.Fatal(err)
	}
	if after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err != nil || *after != *before {
		t.Errorf("the terminal is in raw mode again: %v", err)
	}
}

// A session with a terminal but without input sets only the output to raw mode: lines end correctly, and ^C is still a
// signal.
func TestTerminalWithoutInput(t *testing.T) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	modes := func() unix.Termios {
		m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *m
	}
	before := modes()
	want := before
	want.Oflag &^= unix.OPOST
	terminal := newTerminal(Streams{Out: around{tty}, TTY: true})
	for range 2 { // the second call happens after a stop by the shell
		if err := terminal.raw(); err != nil {
			t.Fatal(err)
		}
		if got := modes(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	terminal.end()
	if got := modes(); got != before {
		t.Errorf("the terminal is not as it was: got %+v, want %+v", got, before)
	}
	if newTerminal(Streams{Out: around{tty}}) != nil || newTerminal(Streams{Out: io.Discard, TTY: true}) != nil {
		t.Error("a session without a terminal has one")
	}
}

func TestTerminalPanic(t *testing.T) {
	_, c := newShell(t)
	x := startOnTerminal(t, c.execURL(t, Streams{In: os.Stdin, Out: os.Stdout, TTY: true}), helperPanic+"=1")
	x.ends("panic: boom")
}

func TestSignalWithoutTerminal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			_, c := newShell(t)
			s := Streams{In: os.Stdin, Out: io.Discard, Err: io.Discard}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperURL+"="+c.execURL(t, s), helperPipe+"=1")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			var out, errs test.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			test.Until(t, "hello", func() bool { return out.String() == "hello" })
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = within(t, "the session", cmd.Wait)
			if code := cmd.ProcessState.ExitCode(); code != 128+int(sig) {
				t.Errorf("got exit status %d, %s", code, errs.String())
			}
		})
	}
}

type around struct{ io.Writer }

func (a around) Unwrap() io.Writer { return a.Writer }

func TestWindowSizeOfAnOutputThatIsListenedTo(t *testing.T) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: 12, Cols: 34}); err != nil {
		t.Fatal(err)
	}
	if got, want := WindowSize(Streams{Out: around{tty}, TTY: true}), (Size{Width: 34, Height: 12}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
