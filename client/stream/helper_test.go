package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
)

// Signals and terminals belong to processes, so terminal tests run a session in a separate process: this test binary
// with helperURL set.
const (
	helperURL   = "CRISHIM_TEST_STREAM_URL"
	helperPanic = "CRISHIM_TEST_STREAM_PANIC"
	helperPipe  = "CRISHIM_TEST_STREAM_NO_TTY"
)

// helper runs a session on its own stdin and stdout, and reports the result on stderr.
func helper(url string) int {
	ctx, end := context.WithCancelCause(context.Background())
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() { end(Signaled((<-received).(syscall.Signal))) }()
	s := Streams{In: os.Stdin, Out: os.Stdout, TTY: true}
	if os.Getenv(helperPipe) != "" {
		s.TTY, s.Err = false, io.Discard
	}
	if os.Getenv(helperPanic) != "" {
		s.Out = writerFunc(func([]byte) (int, error) { panic("boom") })
	}
	err := Run(ctx, url, s, Options{DetachKeys: DefaultDetachKeys})
	fmt.Fprintf(os.Stderr, "ended: %v\n", err)
	var sig *SignalError
	if errors.As(err, &sig) {
		return sig.ExitCode()
	}
	return 0
}

type terminalSession struct {
	t      *testing.T
	master *os.File
	slave  *os.File // keeps the terminal open after the helper has ended
	cmd    *exec.Cmd
	before unix.Termios
	screen test.Buffer
	stderr test.Buffer
	waited chan struct{}
}

// startOnTerminal runs the helper on a terminal of 30 by 100.
func startOnTerminal(t *testing.T, url string, env ...string) *terminalSession {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), helperURL+"="+url)
	return onTerminal(t, cmd)
}

// onTerminal runs a command on a terminal of 30 by 100. Its stderr is collected separately.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminalSession {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	x := &terminalSession{t: t, master: master, slave: slave, cmd: cmd, waited: make(chan struct{})}
	x.setSize(30, 100)
	x.before = x.termios()
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, &x.stderr
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&x.screen, master)
	}()
	go func() {
		defer close(x.waited)
		_ = x.cmd.Wait() // tests check the exit code themselves
	}()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // the process has usually ended
		<-x.waited
		slave.Close()
		master.Close()
		<-read
	})
	return x
}

func (x *terminalSession) setSize(rows, cols uint16) {
	x.t.Helper()
	if err := pty.Setsize(x.master, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminalSession) termios() unix.Termios {
	x.t.Helper()
	tio, err := unix.IoctlGetTermios(int(x.slave.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return *tio
}

func (x *terminalSession) raw() bool {
	return x.termios().Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) == 0
}

func (x *terminalSession) typed(s string) {
	x.t.Helper()
	if _, err := x.master.WriteString(s); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminalSession) signal(sig syscall.Signal) {
	x.t.Helper()
	if err := x.cmd.Process.Signal(sig); err != nil {
		x.t.Fatal(err)
	}
}

// state returns the process state in the kernel's letters. T is stopped.
func (x *terminalSession) state() string { return stateOf(x.cmd.Process.Pid) }

func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

// ends waits for the helper to end and checks that the terminal is restored.
func (x *terminalSession) ends(want string) {
	x.t.Helper()
	select {
	case <-x.waited:
	case <-time.After(patience):
		x.t.Fatalf("the session did not end; stderr: %s", x.stderr.String())
	}
	if !strings.Contains(x.stderr.String(), want) {
		x.t.Errorf("got %q, want %q", x.stderr.String(), want)
	}
	if got := x.termios(); got != x.before {
		x.t.Errorf("the terminal was not restored: got %+v, want %+v", got, x.before)
	}
}
