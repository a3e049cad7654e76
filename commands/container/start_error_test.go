package container

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
)

// TestCannotRun has the error texts of the runtimes named in the cases.
func TestCannotRun(t *testing.T) {
	cases := map[string]struct {
		err  error
		code int
		text string
	}{
		"runc, not in PATH": {
			&stream.RemoteError{Message: `failed to exec in container: failed to start exec "6b": OCI runtime exec failed: exec failed: unable to start container process: exec: "nosuch": executable file not found in $PATH: unknown`},
			127, `exec: "nosuch": executable file not found in $PATH`,
		},
		"runc, no such path": {
			status.Error(codes.Unknown, `failed to exec in container: OCI runtime exec failed: exec failed: unable to start container process: exec: "/nope": stat /nope: no such file or directory: unknown`),
			127, `exec: "/nope": stat /nope: no such file or directory`,
		},
		"runc, a directory": {
			&stream.RemoteError{Message: `OCI runtime exec failed: exec failed: unable to start container process: exec: "/etc": permission denied: unknown`},
			126, `exec: "/etc": permission denied`,
		},
		"runc, no program": {
			&stream.RemoteError{Message: "OCI runtime exec failed: exec failed: unable to start container process: exec /x: exec format error: unknown"},
			126, "exec /x: exec format error",
		},
		"crun, not in PATH": {
			&stream.RemoteError{Message: "crun: executable file `nosuch` not found in $PATH: No such file or directory"},
			127, "crun: executable file `nosuch` not found in $PATH: No such file or directory",
		},
		"CRI-O, --sync": {
			status.Error(codes.Unknown, "command error: time=\"2026-01-02T03:04:05Z\" level=error msg=\"exec failed: unable to start container process: exec: \\\"nosuch\\\": executable file not found in $PATH\"\n, stdout: , stderr: , exit code -1"),
			127, `exec: "nosuch": executable file not found in $PATH`,
		},
		"no container":          {status.Error(codes.NotFound, `container "x": no such file or directory, runc`), 0, ""},
		"a file of the runtime": {errors.New("open /run/x: no such file or directory"), 0, ""},
		"its own status":        {&stream.ExitError{Code: 127}, 0, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := cannotRun(c.err)
			var st *cli.StatusError
			if !errors.As(got, &st) {
				if c.code != 0 || !errors.Is(got, c.err) {
					t.Errorf("got %v, want status %d", got, c.code)
				}
				return
			}
			if st.Code != c.code || st.Error() != c.text {
				t.Errorf("got %d %q, want %d %q", st.Code, st.Error(), c.code, c.text)
			}
		})
	}
	if cannotRun(nil) != nil {
		t.Error("nil is no failure")
	}
}

const startErrorLine = `time="2026-01-02T03:04:05Z" level=error msg="exec failed: unable to start container process: exec: \"/etc\": is a directory"` + "\n"

// TestStartErrorAsOutput: CRI-O passes on the log of its OCI runtime as the command's output. crishim's dockershim
// writes the reason as a shell would.
func TestStartErrorAsOutput(t *testing.T) {
	const line = startErrorLine
	for name, c := range map[string]struct {
		tty  bool
		out  string
		code int
		want int
	}{
		"a start error":          {out: line, code: 255, want: 126},
		"in a terminal":          {tty: true, out: strings.ReplaceAll(line, "\n", "\r\n"), code: 255, want: 126},
		"not in PATH":            {out: strings.Replace(line, "is a directory", "executable file not found in $PATH", 1), code: 255, want: 127},
		"of the dockershim":      {out: "crishim: exec: not there\n", code: 127, want: 127},
		"of it in a terminal":    {tty: true, out: "crishim: chdir failed: no such file\r\n", code: 126, want: 126},
		"crishim in a container": {out: "crishim: there is no pod\n", code: 1},
		"and a hint":             {out: "crishim: no\nhint: yes\n", code: 127},
		"another status":         {out: line, code: 1},
		"something before":       {out: "hello\n" + line, code: 255},
		"a program's own words":  {out: "runc: exec failed: permission denied\n", code: 255},
		"nothing":                {code: 255},
		"more after its line":    {out: line + line, code: 255},
		"more than a line holds": {out: line + strings.Repeat("x", 8<<10), code: 255},
	} {
		var shown bytes.Buffer
		s := stream.Streams{Err: &shown}
		if c.tty {
			s = stream.Streams{Out: &shown, TTY: true}
		}
		e := newStartErrorFilter(&s)
		for _, w := range []io.Writer{s.Out, s.Err} {
			if w != nil {
				_, _ = io.WriteString(w, c.out)
			}
		}
		err := e.orElse(&stream.ExitError{Code: c.code})
		var start *cli.StatusError
		if errors.As(err, &start) != (c.want != 0) || start != nil && start.Code != c.want {
			t.Errorf("%s: got %v, want status %d", name, err, c.want)
		}
		if got := shown.String(); start == nil && got != c.out || start != nil && got != "" {
			t.Errorf("%s: the output is %q", name, got)
		}
	}
}
