package client

import (
	"errors"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
)

// opPull is the operation of every kind of pull.
const opPull = "pull image"

// aboutTheImage begins a runtime's message about a pull, once or twice over. Who asked for
// the image names it.
var aboutTheImage = regexp.MustCompile(`^((pull image [^\s"]+|failed to pull and unpack image "[^"]*"|failed to resolve reference "[^"]*"|Error response from daemon): )+`)

// pullReason is a runtime's message about a failed pull without the image's name before it.
func pullReason(text string) string {
	if rest := text[len(aboutTheImage.FindString(text)):]; rest != "" {
		return rest
	}
	return text
}

// refusals are how registries and runtimes say that a login is missing or wrong. containerd
// gives no code of its own for it.
var refusals = []string{
	"unauthorized", "authentication required", "no basic auth credentials", "incorrect username or password", "401 unauthorized",
	"403 forbidden", "insufficient_scope", "authorization failed", "pull access denied", "denied: ", "access to the resource is denied",
}

// IsRefused says whether a pull failed because the registry did not accept the login, or
// wanted one.
func IsRefused(err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Op != opPull {
		return false
	}
	switch e.Code {
	case codes.Unauthenticated, codes.PermissionDenied:
		return true
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	text := strings.ToLower(e.text)
	for _, refusal := range refusals {
		if strings.Contains(text, refusal) {
			return true
		}
	}
	return false
}
