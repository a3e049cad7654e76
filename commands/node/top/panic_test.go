package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
)

// panicIn makes the test binary run a view that panics after a key. Its value is the part that panics.
const panicIn = "CRISHIM_TEST_PANIC_IN"

func TestMain(m *testing.M) {
	where := os.Getenv(panicIn)
	if where == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	keys := make(chan struct{})
	view := &panics{Model: newModel(Options{}), where: where, keys: keys}
	err := drive(ctx, cancel, cli.NewInvocation(cli.SystemProcess("test"), false), view, new(atomic.Bool), func(ctx context.Context, _ func(any)) {
		select {
		case <-ctx.Done():
		case <-keys:
			panic("in the feed")
		}
	})
	fmt.Fprintln(os.Stderr, "drive:", err)
	os.Exit(1)
}

// panics is a view that panics in the part where.
type panics struct {
	*Model
	where string
	keys  chan struct{}
	typed bool
}

func (p *panics) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	if _, ok := message.(tea.KeyPressMsg); ok {
		p.typed = true
		switch p.where {
		case "update":
			panic("in Update")
		case "command":
			return p, func() tea.Msg { panic("in a command") }
		case "feed":
			close(p.keys)
		}
	}
	_, cmd := p.Model.Update(message)
	return p, cmd
}

func (p *panics) View() tea.View {
	if p.typed && p.where == "view" {
		panic("in View")
	}
	return p.Model.View()
}

// A view that panics restores the terminal before it writes the stack trace.
func TestPanicGivesTheTerminalBack(t *testing.T) {
	for where, code := range map[string]int{"view": 1, "update": 1, "command": 1, "feed": 2} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			keys, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer keys.Close()
			termios := func() unix.Termios {
				state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
				if err != nil {
					t.Fatal(err)
				}
				return *state
			}
			before := termios()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, self)
			// After a panic, bubbletea closes its input during a read. log_path keeps the report of the race detector
			// off the screen.
			cmd.Env = append(os.Environ(), "TERM=xterm", "GORACE=exitcode=0 log_path="+filepath.Join(t.TempDir(), "race"), panicIn+"="+where)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var written test.Buffer
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(&written, keys)
			}()
			for !strings.Contains(written.String(), "asking the runtime") && ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			if _, err := keys.WriteString("x"); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the exit status is compared below
			if after := termios(); after != before {
				t.Error("the terminal is not as it was")
			}
			_ = tty.Close()
			<-read
			text := written.String()
			own, trace := strings.LastIndex(text, "\x1b[?1049l"), strings.Index(text, "goroutine ")
			if cmd.ProcessState.ExitCode() != code || own < strings.LastIndex(text, "\x1b[?1049h") || strings.LastIndex(text, "\x1b[?25h") < strings.LastIndex(text, "\x1b[?25l") {
				t.Errorf("status %d; on the screen: %q", cmd.ProcessState.ExitCode(), text)
			}
			if trace < own || !strings.Contains(text[max(trace, 0):], "panic") {
				t.Errorf("the trace is not on the screen that is left: %q", text)
			}
		})
	}
}
