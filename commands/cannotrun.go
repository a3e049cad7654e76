package commands

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The statuses that a shell gives for a command it cannot run.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// ociTexts are what OCI runtimes (runc, crun, youki) say of a command that they
// could not start. They give nothing else to tell the two cases apart: engines
// disagree about the status. Matched in lower case, in this order.
var ociTexts = []struct {
	text string
	code int
}{
	{"executable file not found", exitNotFound},
	{"executable file `", exitNotFound}, // crun: executable file `x` not found
	{"no such file or directory", exitNotFound},
	{"permission denied", exitCannotRun},
	{"is a directory", exitCannotRun},
	{"exec format error", exitCannotRun},
	{"oci runtime exec failed", exitCannotRun},
	{"oci runtime create failed", exitCannotRun},
}

// ociMarks are what such an error contains besides; "no such file" alone may be
// about anything.
var ociMarks = []string{"oci runtime", "exec failed", "executable file", "exec: ", "runc", "crun"}

// cannotRun gives the error of a command that could not be started the status
// that a shell would; any other error stays as it is.
func cannotRun(err error) error {
	if err == nil || status.Code(err) == codes.NotFound {
		return err
	}
	var done *statusError
	if errors.As(err, &done) {
		return err
	}
	text := strings.ToLower(err.Error())
	if !containsAny(text, ociMarks) {
		return err
	}
	for _, t := range ociTexts {
		if strings.Contains(text, t.text) {
			return &statusError{code: t.code, cause: &ociError{cause: err}}
		}
	}
	return err
}

// ociError is an OCI runtime's error without the layers in front of it.
type ociError struct{ cause error }

func (e *ociError) Error() string {
	text := withoutStatusPrefix(e.cause)
	if _, last, ok := strings.Cut(text, "unable to start container process: "); ok {
		text = last
	}
	return strings.TrimSuffix(text, ": unknown")
}

func (e *ociError) Unwrap() error { return e.cause }

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
