package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// shellTest is a shell on a terminal with crishim's completion, in a directory of its own.
type shellTest struct {
	t      *testing.T
	dir    string
	typed  *os.File // the terminal
	screen test.Buffer
}

// hostileNames are names of containers that a shell would take apart, expand or run. Each
// begins with two characters that no other begins with.
var hostileNames = []string{
	"n1 a  b", "n2'q", `n3"q`, "n4$(touch canary)", "n5`touch canary`", "n6;touch canary;", "n7:x:y=z", "n8*?[a]", `n9\back`,
	"na!1", "nb{a,b}", "nc~x", "nd#x &", "ne=~", "nf|<>(x)", "ngé ", "nh@sha:1", "ni%d^", "nj$HOME", "nk\\", "nl''", "nm x'y\"$(touch canary)",
}

// startShell starts a shell whose file of settings, below its home, has the script of
// crishim behind setUp.
func startShell(t *testing.T, settings, setUp, shell string, args ...string) *shellTest {
	t.Helper()
	program, err := exec.LookPath(shell)
	if err != nil && shell == "bash" {
		test.Missing(t, "no bash")
	}
	if err != nil { // nothing installs the others
		t.Skip("no " + shell)
	}
	stub := stubcri.Start(t, stubcri.Options{})
	pod := stub.AddPod("default", "p")
	for _, name := range append(hostileNames, "mx $(touch canary)1", "mx $(touch canary)2") {
		stub.AddContainer(pod, name)
	}
	shop := stub.AddPod("team", "webshop")
	stub.AddContainer(shop, "apache")
	stub.AddContainer(shop, "sidecar")
	stub.AddImage("registry.example:5000/app:1")
	s := &shellTest{t: t, dir: t.TempDir()}
	self, err := exec.LookPath("crishim")
	if err != nil {
		t.Fatal(err)
	}
	script, err := exec.Command(self, "completion", shell).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"bin/crishim":          fmt.Sprintf("#!/bin/sh\ncase $1 in __complete*) %q \"$@\"; echo >>asked; exit ;; esac\nfor a; do printf '[%%s]' \"$a\"; done >got.new\nmv got.new got\n", self),
		settings:               setUp + string(script),
		"z$(touch canary) x;y": "",
	} {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.dir+"/bin:"+os.Getenv("PATH"), "HOME="+s.dir, "ZDOTDIR="+s.dir, "XDG_CONFIG_HOME="+s.dir, "XDG_DATA_HOME="+s.dir, "XDG_RUNTIME_DIR="+s.dir, "TMPDIR="+s.dir, "TERM=xterm", "LC_ALL=C.UTF-8",
		"CONTAINER_RUNTIME_ENDPOINT="+stub.Endpoint, "CRI_CONFIG_FILE="+os.DevNull, patient+"=1")
	if s.typed, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200}); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&s.screen, s.typed)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = s.typed.Close()
		<-read
		if _, err := os.Stat(filepath.Join(s.dir, "canary")); err == nil {
			t.Error("a name was run as a command")
		}
	})
	return s
}

// run types a line and returns the arguments with which crishim is then started.
func (s *shellTest) run(line string) string {
	s.t.Helper()
	got := filepath.Join(s.dir, "got")
	_ = os.Remove(got)
	before := len(s.screen.String())
	// A person reads what a tab has brought. Fish forgets one when the next key comes before the answer.
	for piece := range strings.SplitAfterSeq(line+"\r", "\t") {
		asked := s.asked()
		if _, err := s.typed.WriteString(piece); err != nil {
			s.t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); strings.HasSuffix(piece, "\t") && s.asked() == asked; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				s.t.Fatalf("%q: nothing is completed; on the screen: %q", line, s.screen.String()[before:])
			}
		}
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(got); err == nil {
			return string(text)
		}
	}
	s.t.Fatalf("%q was not run; on the screen: %q", line, s.screen.String()[before:])
	return ""
}

// asked returns how much has been asked to complete.
func (s *shellTest) asked() int64 {
	info, err := os.Stat(filepath.Join(s.dir, "asked"))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (s *shellTest) want(line string, args ...string) {
	s.t.Helper()
	if diff := cmp.Diff("["+strings.Join(args, "][")+"]", s.run(line)); diff != "" {
		s.t.Errorf("%q: %s", line, diff)
	}
}

// wantPods types the beginnings of the names of a pod, of its containers and of its namespace.
func (s *shellTest) wantPods() {
	s.t.Helper()
	s.want("crishim describe we\t", "describe", "webshop")
	s.want("crishim exec webshop/a\tls", "exec", "webshop/apache", "ls")
	s.want("crishim delete -n te\twe\t", "delete", "-n", "team", "webshop")
}

// TestCompletionInBash types in a real bash with bash-completion, as people have it.
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	const library = "/usr/share/bash-completion/bash_completion"
	if _, err := os.Stat(library); err != nil {
		test.Missing(t, "no bash-completion")
	}
	s := startShell(t, "rc", ". "+library+"\nunset HISTFILE\n", "bash", "--rcfile", "rc", "-i")
	for _, name := range hostileNames {
		s.want("crishim rm "+name[:2]+"\t", "rm", name)
		if !strings.HasSuffix(name, "'") {
			s.want("crishim rm '"+name[:2]+"\t", "rm", name)
		}
		if !strings.Contains(name, "!") {
			s.want("crishim rm \""+name[:2]+"\t", "rm", name)
		}
	}
	for _, word := range []string{`n7:x`, `n7:x:y\=`, `'n7:x`} { // each on its own line: completion offers no argument twice
		s.want("crishim rm --force n1\\ \t "+word+"\t", "rm", "--force", "n1 a  b", "n7:x:y=z")
	}
	s.want("crishim rm mx\t2\t", "rm", "mx $(touch canary)2")
	s.want("crishim rm 'mx\t2\t", "rm", "mx $(touch canary)2")
	s.want("crishim rm \"n1 a\"\t", "rm", "n1 a  b")
	s.want("crishim rm \"n\"1\t", "rm", "n1 a  b")
	s.want("crishim rmi registry.example:5\t", "rmi", "registry.example:5000/app:1")
	s.want("crishim ps --output=js\tl\t", "ps", "--output=jsonl")
	s.want("crishim cp z\t", "cp", "z$(touch canary) x;y")
	s.wantPods()
}

func TestCompletionInZsh(t *testing.T) {
	t.Parallel()
	s := startShell(t, ".zshrc", "autoload -U compinit\ncompinit -D -u\n", "zsh", "-d", "-i")
	for _, name := range hostileNames {
		s.want("crishim rm "+name[:2]+"\t", "rm", name)
		s.want("crishim rm '"+name[:2]+"\t", "rm", name)
	}
	s.want("crishim rm mx\t2\t", "rm", "mx $(touch canary)2")
	s.want("crishim rmi registry.example:5\t", "rmi", "registry.example:5000/app:1")
	s.want("crishim cp z\t", "cp", "z$(touch canary) x;y")
}

func TestCompletionInFish(t *testing.T) {
	t.Parallel()
	s := startShell(t, "fish/config.fish", "", "fish", "-i")
	for _, name := range hostileNames {
		s.want("crishim rm "+name[:2]+"\t", "rm", name)
		s.want("crishim rm '"+name[:2]+"\t", "rm", name)
	}
	s.want("crishim rmi registry.example:5\t", "rmi", "registry.example:5000/app:1")
	s.want("crishim cp z\t", "cp", "z$(touch canary) x;y")
}
