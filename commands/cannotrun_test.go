package commands

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client/stream"
)

// The texts are what the runtimes named in the cases say.
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
		"no container":          {status.Error(codes.NotFound, `container "x": no such file or directory, runc`), 0, ""},
		"a file of the runtime": {errors.New("open /run/x: no such file or directory"), 0, ""},
		"its own status":        {&stream.ExitError{Code: 127}, 0, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := cannotRun(c.err)
			var st *statusError
			if !errors.As(got, &st) {
				if c.code != 0 || !errors.Is(got, c.err) {
					t.Errorf("got %v, want status %d", got, c.code)
				}
				return
			}
			if st.code != c.code || st.Error() != c.text {
				t.Errorf("got %d %q, want %d %q", st.code, st.Error(), c.code, c.text)
			}
		})
	}
	if cannotRun(nil) != nil {
		t.Error("nil is no failure")
	}
}
