// Package ocierror parses the messages of engines and OCI runtimes (runc, crun, youki) about a process that could not
// be started. Only the text identifies the reason reliably: exit statuses differ between engines.
package ocierror

import (
	"slices"
	"strconv"
	"strings"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// Exit statuses of shells for commands that could not be started.
const (
	StatusCannotRun = 126
	StatusNotFound  = 127
)

// Failure is a reason why a process could not be started.
type Failure int

const (
	Unknown Failure = iota
	NotFound
	NotExecutable
	WrongFormat
	NoWorkingDir
	noUser
	NoMount
	DiskFull
)

// ends are compared only with the end of a message. The command is earlier in the message and may contain any text.
var ends = []struct {
	text    string
	failure Failure
}{
	{"executable file not found in $path", NotFound},
	{"no such file or directory", NotFound},
	{"permission denied", NotExecutable},
	{"is a directory", NotExecutable},
	{"not a directory", NotExecutable},
	{"exec format error", WrongFormat},
	{"no matching entries in passwd file", noUser},
	{"no space left on device", DiskFull},
}

func Of(text string) Failure {
	text = strings.ToLower(strings.TrimRight(Plain(text), "\"` \r\n"))
	switch {
	case strings.Contains(text, "error mounting"), strings.Contains(text, "bind source path does not exist"):
		return NoMount
	case strings.HasPrefix(strings.TrimPrefix(text, "crun: "), "chdir "), strings.HasPrefix(text, "mkdir ") && strings.HasSuffix(text, "not a directory"):
		return NoWorkingDir
	case strings.HasPrefix(text, "unable to find user "), strings.HasPrefix(text, "unable to find group "):
		return noUser
	}
	for _, e := range ends {
		if strings.HasSuffix(text, e.text) {
			return e.failure
		}
	}
	return Unknown
}

// marks identify messages about a failed start: each of them contains at least one mark. "no such file" is no mark,
// because messages about other failures contain it, too.
var marks = []string{"oci runtime", "exec failed", "executable file", "exec: ", "runc", "crun", "unable to find user", "unable to find group"}

func IsStart(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(text, mark) })
}

// ExitStatus returns a shell's exit status for a failed start. It returns 0 if the text is not about a failed start, or
// if the command is not the cause (such as an unknown user) and the text has no prefix of an OCI runtime.
func ExitStatus(text string) int {
	if !IsStart(text) {
		return 0
	}
	switch Of(text) {
	case NotFound:
		return StatusNotFound
	case NotExecutable, WrongFormat, NoWorkingDir:
		return StatusCannotRun
	}
	if text = strings.ToLower(text); strings.Contains(text, "oci runtime exec failed") || strings.Contains(text, "oci runtime create failed") {
		return StatusCannotRun
	}
	return 0
}

// layers matches the prefixes of engine, containerd and runc before the reason.
var layers = lazyregexp.New(`^(.*unable to start container process: |Error response from daemon: |failed to create (shim task|task for container): |` +
	`failed to start shim: |failed to create shim: |OCI runtime (create|start|exec) failed: |runc (create|start|exec) failed: |exec failed: |` +
	`(container_linux|process_linux|rootfs_linux|standard_init_linux)\.go:\d+: |` +
	`(starting container process|container init) caused( ".*")?: |error during container init: )+`)

// Plain removes the prefixes of engine, containerd and runc, and containerd's suffix ": unknown", from an error. It
// returns a text unchanged if the text has no such prefix and is not about a failed start (see IsStart).
func Plain(text string) string {
	reason := layers.ReplaceAllString(text, "")
	if reason == text && !IsStart(text) {
		return text
	}
	reason, _, _ = strings.Cut(reason, "\n, stdout: ") // from CRI-O's ExecSync
	reason = strings.TrimSpace(reason)
	if quoted, ok := strings.CutSuffix(reason, `"`); ok && strings.Count(reason, `"`)%2 == 1 { // the rest of a quoted log line
		reason = quoted
		if plain, err := strconv.Unquote(`"` + quoted + `"`); err == nil {
			reason = plain
		}
	}
	return strings.TrimSuffix(reason, ": unknown")
}

// Error is a runtime's error with the text from Plain.
type Error struct{ Err error }

func (e Error) Error() string { return Plain(e.Err.Error()) }

func (e Error) Unwrap() error { return e.Err }
