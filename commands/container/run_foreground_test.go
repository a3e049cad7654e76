package container

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

func TestEarlyOutput(t *testing.T) {
	dialled := time.Now()
	entry := func(after time.Duration, text string) logfile.Entry {
		return logfile.Entry{Time: dialled.Add(after), Stream: logfile.Stdout, Text: []byte(text)}
	}
	first, again := entry(-time.Second, "first\r\n"), entry(-time.Second, "first\r\n")
	for name, tt := range map[string]struct {
		log  []logfile.Entry
		came []string
		want string
	}{
		"before":                {[]logfile.Entry{first}, []string{"second\r\n"}, "first\r\nsecond\r\n"},
		"the same twice":        {[]logfile.Entry{first, again}, []string{"first\r\n"}, "first\r\nfirst\r\nfirst\r\n"},
		"both ways":             {[]logfile.Entry{first, entry(1, "second\r\n")}, []string{"second\r\n", "third"}, "first\r\nsecond\r\nthird"},
		"the log is ahead":      {[]logfile.Entry{first, entry(1, "a\r\n"), entry(2, "b\r\n")}, []string{"a\r\n", "b\r\n"}, "first\r\na\r\nb\r\n"},
		"the log is behind":     {[]logfile.Entry{entry(1, "a\r\n")}, []string{"a\r\nb"}, "a\r\nb"},
		"missed while dialling": {[]logfile.Entry{entry(1, "a\r\n")}, []string{"b"}, "a\r\nb"},
		"in pieces":             {[]logfile.Entry{first, entry(1, "a\r\n"), entry(2, "b\r\n")}, []string{"a", "\r\nb", "\r\nc"}, "first\r\na\r\nb\r\nc"},
		"not in order":          {[]logfile.Entry{entry(1, "a\r\n"), entry(2, "b\r\n")}, []string{"a\r\n", "c"}, "a\r\nb\r\nc"},
		"nothing":               {nil, []string{"a"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			e := &earlyOutput{out: &out, dialled: dialled, log: func(emit func(logfile.Entry) error) error {
				for _, one := range tt.log {
					_ = emit(one)
				}
				return nil
			}}
			for _, text := range tt.came {
				if n, err := e.Write([]byte(text)); n != len(text) || err != nil {
					t.Errorf("Write: %d, %v", n, err)
				}
			}
			if got := out.String(); got != tt.want || !e.finish() {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestEarlyOutputOfAQuietCommand(t *testing.T) {
	var out test.Buffer
	e := &earlyOutput{out: &out, dialled: time.Now(), log: func(emit func(logfile.Entry) error) error {
		return emit(logfile.Entry{Text: []byte("name?\r\n")})
	}}
	e.connected()
	for deadline := time.Now().Add(time.Minute); out.String() == "" && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if _, err := e.Write([]byte("x")); err != nil || out.String() != "name?\r\nx" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	if !e.finish() {
		t.Error("finish reports that nothing was shown")
	}
}

// TestEarlyOutputReturnsTheCarriageOnce: containerd's log has lost the carriage returns of a terminal, Docker's log
// has kept them.
func TestEarlyOutputReturnsTheCarriageOnce(t *testing.T) {
	for name, log := range map[string][]string{
		"containerd": {"one\n", "t", "wo\n"},
		"Docker":     {"one\r\n", "two\r", "\n"},
	} {
		var out bytes.Buffer
		e := &earlyOutput{out: &out, dialled: time.Now(), raw: true, log: func(emit func(logfile.Entry) error) error {
			for _, text := range log {
				_ = emit(logfile.Entry{Time: time.Now(), Text: []byte(text)})
			}
			return nil
		}}
		if _, err := e.Write([]byte("two\r\nthree\r\n")); err != nil { // partly in the log already
			t.Fatal(err)
		}
		if got := out.String(); got != "one\r\ntwo\r\nthree\r\n" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// TestFollowedTerminalOutput: Docker's log has the carriage returns of a container's terminal. A terminal that is not
// in raw mode adds them itself.
func TestFollowedTerminalOutput(t *testing.T) {
	t.Parallel()
	stub := stubcri.Start(t, stubcri.Options{})
	dir := t.TempDir()
	id := stub.AddContainer(stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = dir }), "app",
		func(c *runtimeapi.ContainerConfig) { c.LogPath = "app.log" })
	stub.Log(id, "stdout", "one\r")
	stub.Log(id, "stdout", "two\r")
	stub.Exit(id, 0)
	for terminal, want := range map[bool]string{true: "one\ntwo\n", false: "one\r\ntwo\r\n"} {
		var out test.Buffer
		r := &runner{runOptions: &runOptions{}, Printer: cli.NewPrinter(&cli.Process{Out: &out, OutTerminal: terminal}), conn: connect(t, stub), containerID: id}
		r.session.TTY = true
		if err := r.follow(t.Context(), filepath.Join(dir, "app.log")); err != nil || out.String() != want {
			t.Errorf("on a terminal %t: got %q, %v", terminal, out.String(), err)
		}
	}
}
