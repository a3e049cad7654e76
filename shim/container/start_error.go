package container

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/crishim/crishim/shim/internal/ocitext"
)

// startFailures tells apart what only the OCI runtime's text says. The engine
// gives some of them status 404, which would read as "no such container".
var startFailures = []struct{ text string }{
	{"executable file not found"},
	{"no such file or directory"},
	{"permission denied"},
	{"exec format error"},
	{"is a directory"},
	{"not a directory"},
	{"unable to find user"},
	{"unable to find group"},
	{"no matching entries in passwd file"},
}

// startError is a failed start in one sentence and with a class of its own.
func startError(err error, privileged bool) error {
	text := ocitext.Plain(err.Error())
	for _, f := range startFailures {
		if strings.Contains(text, f.text) && isRuntimeError(err) {
			return fmt.Errorf("%s: %w", text, errdefs.ErrInvalidArgument)
		}
	}
	if !isRuntimeError(err) {
		return err
	}
	if privileged && strings.Contains(text, "operation not permitted") {
		text += " (the engine's host does not allow privileged containers)"
	}
	return fmt.Errorf("%s: %w", text, errdefs.ErrUnknown)
}

// isRuntimeError says whether the OCI runtime spoke, and not the engine.
func isRuntimeError(err error) bool {
	return strings.Contains(err.Error(), "OCI runtime") || strings.Contains(err.Error(), "runc") ||
		strings.Contains(err.Error(), "unable to find user") || strings.Contains(err.Error(), "unable to find group")
}
