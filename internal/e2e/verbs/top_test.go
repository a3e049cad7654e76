package verbs

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/screen"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// Escape sequences that full-screen programs begin and end with.
const (
	otherScreen = "\x1b[?1049h"
	ownScreen   = "\x1b[?1049l"
)

// startTop starts top, and waits until it has drawn the list.
func startTop(t *testing.T) *terminalTest {
	t.Helper()
	c := withStub(t, stubcri.Options{})
	seedTrouble(c.stub)
	p := startOnTerminal(t, c, "top", "--seconds", "100ms")
	p.eventually("the list", func() bool { return p.draws("proxy", 0) })
	return p
}

// draws reports whether a text is on the screen since a position of what was written.
func (p *terminalTest) draws(text string, since int) bool {
	return strings.Contains(p.screen.String()[since:], text)
}

func (p *terminalTest) leaves(code int) {
	p.t.Helper()
	p.ends(code)
	p.eventually("its own screen again", func() bool {
		all := p.screen.String()
		return strings.LastIndex(all, ownScreen) > strings.LastIndex(all, otherScreen) && strings.LastIndex(all, "\x1b[?25h") > strings.LastIndex(all, "\x1b[?25l")
	})
}

// However top ends, the terminal is as it was.
func TestTopGivesTheTerminalBack(t *testing.T) {
	for name, c := range map[string]struct {
		keys   string
		signal syscall.Signal
		code   int
	}{
		"q":       {keys: "q"},
		"Ctrl-C":  {keys: "\x03"},
		"SIGINT":  {signal: syscall.SIGINT},
		"SIGTERM": {signal: syscall.SIGTERM, code: 143},
		"SIGHUP":  {signal: syscall.SIGHUP, code: 129},
		"SIGQUIT": {signal: syscall.SIGQUIT, code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startTop(t)
			p.typed(c.keys)
			if c.signal != 0 {
				if err := p.cmd.Process.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			p.leaves(c.code)
		})
	}
}

// A stopped top leaves the terminal to the shell, and draws all again when it goes on.
func TestTopStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	p := startTop(t)
	p.typed("\x1a")
	p.stops()
	if p.termios() != p.before {
		t.Error("a stopped top keeps the terminal")
	}
	since := len(p.screen.String())
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.eventually("the list again", func() bool { return p.draws(otherScreen, since) && p.draws("proxy", since) })
	p.typed("q")
	p.leaves(0)
}

// A runtime that goes away is said, and waited for.
func TestTopWithoutItsRuntime(t *testing.T) {
	t.Parallel()
	p := startTop(t)
	p.c.stub.Stop()
	p.eventually("the loss", func() bool { return p.draws("no answer, trying again", 0) })
	p.typed("q")
	p.leaves(0)
}

// figures are what differs from one run to the next, and how wide that makes what is before them.
var (
	figures = regexp.MustCompile(`([ (/])[0-9][0-9.]*[A-Za-z%]*`)
	spaces  = regexp.MustCompile(` {2,}|─+`)
)

// TestTopScreens keeps what people see on terminals of three sizes, which tmux draws: the list, a page, the keys.
func TestTopScreens(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {132, 30}, {220, 50}} {
		t.Run(fmt.Sprintf("%dx%d", size.width, size.height), func(t *testing.T) {
			t.Parallel()
			c := withStub(t, stubcri.Options{})
			seedTrouble(c.stub)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			s := screen.StartTmux(t, size.width, size.height, []string{"CRISHIM_TEST_PROGRAM=1", "CONTAINER_RUNTIME_ENDPOINT=" + c.stub.Endpoint, "CRI_CONFIG_FILE=" + c.file("none.yaml", ""), "CRISHIM_ROOT=" + t.TempDir()},
				self, "top", "--seconds", "100ms", "--sort", "name")
			list := s.Until("two samples of each pod that runs", func(text string) bool {
				rates := 0 // not those of the machine, in the first line
				for line := range strings.Lines(text) {
					if strings.Contains(line, "/coredns-") && strings.Contains(line, " 0B") || strings.Contains(line, "/checkout-") && strings.Contains(line, " 0B") {
						rates++
					}
				}
				return rates == 2 && strings.Contains(text, "6.29MB")
			})
			s.Types("d")
			page := s.Shows("Container report")
			s.Press("Escape")
			s.Shows("POD / CONTAINER")
			s.Types("?")
			keys := s.Shows("Ctrl-Z")
			_, list, _ = strings.Cut(list, "\n") // without the figures of this machine
			var all strings.Builder
			for line := range strings.Lines(list + "\n" + page + "\n" + keys) {
				line = spaces.ReplaceAllString(figures.ReplaceAllString(line, "${1}9"), "  ")
				all.WriteString(strings.TrimRight(line, " \n") + "\n")
			}
			test.Golden(t, fmt.Sprintf("top-%dx%d", size.width, size.height), all.String())
			s.Types("qq")
		})
	}
}

// TestTopOnce prints a page for programs: no escape code in it.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedTrouble(c.stub)
	r := c.run("top", "--once", "--sort", "name")
	if r.code != 0 || r.err != "" || strings.Contains(r.out, "\x1b") {
		t.Fatalf("got %+v", r)
	}
	_, list, _ := strings.Cut(r.out, "\n") // behind the figures of this machine
	test.Golden(t, "top-once", list)
	type row struct {
		Namespace, Name, State string
		Memory                 *int64 `json:"memoryBytes"`
		Containers             []row
	}
	for line, want := range map[string]int{"": 6, "kube-system": 1, "-n kube-system": 1, "-n nowhere": 0, "-l app=none": 0} {
		r := c.run(append([]string{"top", "--once", "--sort", "name", "-o", "json"}, strings.Fields(line)...)...)
		var got struct{ Pods []row }
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 || got.Pods == nil || len(got.Pods) != want {
			t.Fatalf("%q: %v, %+v", line, err, r)
		}
		if len(got.Pods) == 0 {
			continue
		}
		if last := got.Pods[len(got.Pods)-1]; last.Memory == nil || last.State == "" || len(last.Containers) == 0 || last.Containers[0].Name == "" {
			t.Errorf("%q: %+v", line, last)
		}
	}
	for _, line := range []string{"a b --once", "a -n b --once", "-o json", "-l =x --once"} {
		if r := c.run(append([]string{"top"}, strings.Fields(line)...)...); r.code != 2 {
			t.Errorf("%s: got %+v", line, r)
		}
	}
	if r := c.run("top"); r.code != 2 || !strings.Contains(r.err, "--once") {
		t.Errorf("without a terminal: %+v", r)
	}
	if r := c.run("top", "--once", "--seconds", "1ms"); r.code != 2 {
		t.Errorf("got %+v", r)
	}
}

// TestTopOfAHostileRuntime: what the runtime calls itself reaches no terminal as it is.
func TestTopOfAHostileRuntime(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Change: func(answer proto.Message) {
		if v, ok := answer.(*runtimeapi.VersionResponse); ok {
			v.RuntimeName, v.RuntimeVersion = "evil\x1b[2J", "1\x1b]0;title\x07"
		}
	}})
	if r := c.run("top", "--once"); r.code != 0 || !strings.Contains(r.out, `evil\x1b[2J 1`) || strings.ContainsAny(r.out, "\x1b\x07") {
		t.Errorf("got %+v", r)
	}
}
