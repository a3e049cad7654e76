package verbs

import (
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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/screen"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// terminalTest is a crishim on a terminal.
type terminalTest struct {
	t         *testing.T
	c         *commandTest
	cmd       *exec.Cmd
	keys, tty *os.File
	screen    test.Buffer
	before    unix.Termios
}

func askOnTerminal(t *testing.T) *terminalTest {
	t.Helper()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("app")
	p := startOnTerminal(t, c, "pull", "--creds", "me", "app")
	p.asks(1)
	return p
}

// startOnTerminal starts a command line on a terminal of 80 by 24.
func startOnTerminal(t *testing.T, c *commandTest, args ...string) *terminalTest {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &terminalTest{t: t, c: c, cmd: exec.Command(self, args...)}
	if p.keys, p.tty, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(p.keys, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	p.before = p.termios()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.tty, p.tty, p.tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.cmd.Env = append(os.Environ(), "TERM=xterm", "CRISHIM_TEST_PROGRAM=1", "CONTAINER_RUNTIME_ENDPOINT="+p.c.stub.Endpoint, "CRI_CONFIG_FILE="+p.c.file("none.yaml", ""))
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&p.screen, p.keys)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_, _ = p.cmd.Process.Wait() // it may have been waited for
		_ = p.tty.Close()
		<-read
		_ = p.keys.Close()
	})
	return p
}

// TestRunTellsTheSizeOfTheTerminal checks the annotation by which crishim's shim creates the container's terminal.
func TestRunTellsTheSizeOfTheTerminal(t *testing.T) {
	for flags, want := range map[string]bool{"-it": true, "-t": true, "-i": false} {
		p := startOnTerminal(t, withStub(t, stubcri.Options{}), "run", "--dry-run", flags, "app")
		p.ends(0)
		p.eventually("both requests", func() bool { return strings.Count(p.screen.String(), `"config": {`) > 1 }) // the screen is read meanwhile
		if got := strings.Contains(p.screen.String(), `"io.crishim.console-size": "24x80"`); got != want {
			t.Errorf("%s: got\n%s", flags, p.screen.String())
		}
	}
}

func (p *terminalTest) termios() unix.Termios {
	p.t.Helper()
	state, err := unix.IoctlGetTermios(int(p.tty.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *state
}

func (p *terminalTest) eventually(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s: not within 20 seconds; on the screen: %q", what, p.screen.String())
		}
	}
}

// asks waits until the password has been asked for so often, the echo being off.
func (p *terminalTest) asks(times int) {
	p.t.Helper()
	p.eventually("the prompt", func() bool {
		return strings.Count(p.screen.String(), "Password for me: ") == times && p.termios().Lflag&unix.ECHO == 0
	})
}

func (p *terminalTest) typed(keys string) {
	p.t.Helper()
	if _, err := p.keys.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the end, after which the terminal is as it was.
func (p *terminalTest) ends(code int) {
	p.t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = p.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		p.t.Fatalf("it goes on; on the screen: %q", p.screen.String())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("got status %d, want %d; on the screen: %q", got, code, p.screen.String())
	}
	if p.termios() != p.before {
		p.t.Error("the terminal is not as it was")
	}
}

func TestPasswordPrompt(t *testing.T) {
	t.Parallel()
	p := askOnTerminal(t)
	p.typed("s3cret\r")
	p.ends(0)
	var password string
	for _, call := range p.c.stub.Calls() {
		if r, ok := call.Request.(*runtimeapi.PullImageRequest); ok {
			password = r.GetAuth().GetPassword()
		}
	}
	if password != "s3cret" || strings.Contains(p.screen.String(), "s3cret") {
		t.Errorf("the runtime got %q; on the screen: %q", password, p.screen.String())
	}
}

// However the prompt ends, the terminal echoes again.
func TestPasswordPromptInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		keys   string
		signal syscall.Signal
		code   int
	}{
		"Ctrl-C":  {keys: "s3\x03", code: 130},
		"Ctrl-D":  {keys: "\x04", code: 1},
		"Ctrl-\\": {keys: "s3\x1c", code: 1},
		"SIGINT":  {signal: syscall.SIGINT, code: 130},
		"SIGTERM": {signal: syscall.SIGTERM, code: 143},
		"SIGHUP":  {signal: syscall.SIGHUP, code: 129},
		"SIGQUIT": {signal: syscall.SIGQUIT, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := askOnTerminal(t)
			p.typed(c.keys)
			if c.signal != 0 {
				if err := p.cmd.Process.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			p.ends(c.code)
			if strings.Contains(p.screen.String(), "goroutine") || len(p.c.stub.Calls()) > 0 {
				t.Errorf("on the screen: %q; the runtime was asked %v", p.screen.String(), p.c.stub.Calls())
			}
		})
	}
}

// stops waits until the process is stopped.
func (p *terminalTest) stops() {
	p.t.Helper()
	p.eventually("it stops", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

// A stopped prompt leaves the terminal to the shell, and asks again when it goes on.
func TestPasswordPromptStopped(t *testing.T) {
	t.Parallel()
	p := askOnTerminal(t)
	if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	p.stops()
	if p.termios() != p.before {
		t.Error("a stopped prompt keeps the echo off")
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.asks(2)
	p.typed("s3cret\r")
	p.ends(0)
}

// A watched page has what was named, and nothing else.
func TestWatchedStatsOfTargets(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedTrouble(c.stub)
	for verb, target := range map[string]string{"stats": "proxy", "statsp": "checkout-7f9c6b5d4-abcde"} {
		p := startOnTerminal(t, c, verb, "--watch", target)
		p.eventually("a page", func() bool { return p.draws("shop/checkout", 0) })
		p.typed("\x03")
		p.ends(0)
		if p.draws("coredns", 0) {
			t.Errorf("%s: more than %s: %q", verb, target, p.screen.String())
		}
	}
}

// A watched page is drawn in its place, and stays when it ends, with a terminal that nothing was changed of.
func TestWatchedStatsOnTerminal(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedTrouble(c.stub)
	p := startOnTerminal(t, c, "stats", "--watch")
	page := func() string { return screen.Text(p.screen.String(), 80) }
	p.eventually("two pages", func() bool { return strings.Contains(page(), "proxy") })
	c.stub.AddContainer(c.stub.AddPod("default", "later"), "more")
	p.eventually("another page", func() bool { return strings.Contains(page(), "more") && strings.Count(page(), "proxy") == 1 })
	p.typed("\x03")
	p.ends(0)
	if !strings.Contains(page(), "more") || strings.LastIndex(p.screen.String(), "\x1b[?25h") < strings.LastIndex(p.screen.String(), "\x1b[?25l") {
		t.Errorf("at the end: %q", p.screen.String())
	}
}
