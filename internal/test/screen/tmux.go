package screen

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test"
)

// Tmux is a program on a tmux terminal, which supports all escape sequences.
type Tmux struct {
	t      testing.TB
	socket string
}

// StartTmux runs a command on a terminal of the given size until the test ends.
func StartTmux(t testing.TB, width, height int, env []string, command ...string) *Tmux {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		test.Missing(t, "tmux is not here: %v", err)
	}
	s := &Tmux{t, filepath.Join(os.TempDir(), "crishim-tmux-"+rand.Text())}
	t.Cleanup(func() {
		_ = s.tmux("kill-server").Run() // it may have ended with its command
		_ = os.Remove(s.socket)
	})
	cmd := s.tmux(append([]string{"-f", os.DevNull, "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), "--"}, command...)...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C.UTF-8"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	s.must("set-option", "-g", "status", "off")
	s.must("resize-window", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height))
	return s
}

func (s *Tmux) tmux(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-S", s.socket, "-u"}, args...)...)
}

func (s *Tmux) must(args ...string) string {
	s.t.Helper()
	out, err := s.tmux(args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *Tmux) Types(text string) {
	s.t.Helper()
	s.must("send-keys", "-l", text)
}

// Press presses a key by its tmux name, such as Enter.
func (s *Tmux) Press(key string) {
	s.t.Helper()
	s.must("send-keys", key)
}

func (s *Tmux) text() string {
	s.t.Helper()
	return s.must("capture-pane", "-p")
}

// Coloured returns the screen with its colours, for SVG.
func (s *Tmux) Coloured() string {
	s.t.Helper()
	return s.must("capture-pane", "-p", "-e")
}

func (s *Tmux) Until(what string, ok func(screen string) bool) string {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text := s.text()
		if ok(text) {
			return text
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within a minute; on the screen:\n%s", what, text)
		}
	}
}

// Shows waits until a text is on the screen, and returns the screen.
func (s *Tmux) Shows(text string) string {
	s.t.Helper()
	return s.Until(text, func(screen string) bool { return strings.Contains(screen, text) })
}
