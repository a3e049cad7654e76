package container

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/logfile"
)

// TestLastLines: an engine counts the tail over both streams and up to the end of the log, regardless of --stream and
// --until.
func TestLastLines(t *testing.T) {
	t.Parallel()
	log := []logfile.Entry{}
	for i := range 6 {
		stream := logfile.Stdout
		if i%2 == 1 {
			stream = logfile.Stderr
		}
		log = append(log, logfile.Entry{Time: time.Unix(int64(i), 0), Stream: stream, Text: fmt.Appendf(nil, "%d\n", i)})
	}
	for name, c := range map[string]struct {
		o    logfile.Options
		want string
	}{
		"of both streams":      {logfile.Options{Tail: 2}, "4 5 "},
		"of one stream":        {logfile.Options{Tail: 2, Stream: logfile.Stderr}, "3 5 "},
		"before a time":        {logfile.Options{Tail: 2, Until: time.Unix(3, 0)}, "2 3 "},
		"of one before a time": {logfile.Options{Tail: 1, Stream: logfile.Stdout, Until: time.Unix(3, 0)}, "2 "},
		"and what follows":     {logfile.Options{Tail: 1, Stream: logfile.Stdout, Follow: true}, "4 6 "},
		"none":                 {logfile.Options{Tail: 0, Stream: logfile.Stderr}, ""},
	} {
		got := ""
		emit := func(e logfile.Entry) error { got += strings.TrimSpace(string(e.Text)) + " "; return nil }
		err := lastLines(c.o, emit, func(o logfile.Options, emit func(logfile.Entry) error) error {
			all := log
			if o.Follow {
				all = append(slices.Clone(log), logfile.Entry{Time: time.Unix(6, 0), Stream: logfile.Stdout, Text: []byte("6\n")})
			}
			if o.Tail >= 0 { // as the engine does it
				all = all[max(0, len(all)-o.Tail):]
			}
			for _, e := range all {
				if e.Time.Before(o.Since) || !o.Until.IsZero() && e.Time.After(o.Until) || o.Stream != "" && e.Stream != o.Stream {
					continue
				}
				if err := emit(e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// TestALineWithoutAnEnd: an endless line is shown in lines of maxPending bytes.
func TestALineWithoutAnEnd(t *testing.T) {
	var out bytes.Buffer
	w := &logWriter{out: &out, err: io.Discard, o: logsOptions{timestamps: true}, left: -1, pending: lines{}}
	part := logfile.Entry{Stream: logfile.Stdout, Text: bytes.Repeat([]byte("x"), 16<<10)}
	const parts = 3 * maxPending / (16 << 10)
	for range parts {
		if err := w.entry(cli.ContainerPath{Container: "web"}, part); err != nil {
			t.Fatal(err)
		}
		for _, e := range w.pending {
			if len(e.Text) > maxPending {
				t.Fatalf("%d bytes are kept", len(e.Text))
			}
		}
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(out.Bytes(), []byte("x")); got != parts*len(part.Text) || bytes.Count(out.Bytes(), []byte("\n")) != 3 {
		t.Errorf("got %d bytes in %d lines", got, bytes.Count(out.Bytes(), []byte("\n")))
	}
}

// TestTheEndOfAnUnfinishedLine: the line has its time, and no newline that the container did not write.
func TestTheEndOfAnUnfinishedLine(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, c := range map[string]struct {
		w    *logWriter
		want string
	}{
		"plain":   {&logWriter{}, "abcd"},
		"time":    {&logWriter{o: logsOptions{timestamps: true}}, "2026-01-02T03:04:05.000000006Z abcd"},
		"grep":    {&logWriter{o: logsOptions{grep: cli.Pattern{Regexp: regexp.MustCompile("bc")}}}, "abcd"},
		"several": {&logWriter{prefix: true}, "web | abcd\n"},
	} {
		var out bytes.Buffer
		w := c.w
		w.out, w.err, w.left, w.pending = &out, io.Discard, -1, lines{}
		for _, part := range []string{"ab", "cd"} {
			if err := w.entry(cli.ContainerPath{Container: "web"}, logfile.Entry{Time: at, Stream: logfile.Stdout, Text: []byte(part)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.finish(); err != nil || out.String() != c.want {
			t.Errorf("%s: got %q, %v, want %q", name, out.String(), err, c.want)
		}
	}
}

// TestPrefixesHaveColors: each container has its own color on a terminal, and keeps it.
func TestPrefixesHaveColors(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &logWriter{out: &out, prefix: true, colors: map[cli.ContainerPath]int{}, o: logsOptions{color: true}, left: -1, pending: lines{}}
	for _, name := range []string{"a", "b", "a"} {
		if err := w.entry(cli.ContainerPath{Pod: "web", Container: name}, logfile.Entry{Text: []byte("x\n")}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), "\x1b[36mweb/a |\x1b[0m x\n\x1b[33mweb/b |\x1b[0m x\n\x1b[36mweb/a |\x1b[0m x\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
