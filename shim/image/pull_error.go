package image

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// pullFailures tells classes of pull errors apart by the engine's text, because
// the engine passes on registry errors without a class: most come inside the
// progress messages, after the call has answered 200. First match counts.
var pullFailures = []struct {
	class error
	texts []string
}{
	{errdefs.ErrUnauthenticated, []string{
		"unauthorized", "authentication required", "no basic auth credentials", "incorrect username or password",
	}},
	{errdefs.ErrPermissionDenied, []string{"pull access denied", "denied: ", "access to the resource is denied"}},
	// The codes are what is left of an answer that is not labelled as JSON.
	{errdefs.ErrNotFound, []string{"manifest unknown", "name unknown", "manifest_unknown", "name_unknown", "not found", "no matching manifest"}},
	{errdefs.ErrInvalidArgument, []string{"invalid reference format"}},
	{errRegistryUnavailable, []string{
		"502 bad gateway", "503 service unavailable", "504 gateway timeout", "received unexpected http status: 5",
		"500 internal server error", "toomanyrequests", "connection refused", "connection reset", "no such host",
		"i/o timeout", "tls handshake timeout", "client.timeout exceeded", "request canceled while waiting",
		"network is unreachable", "no route to host", "server misbehaving",
	}},
}

var errRegistryUnavailable = errors.New("registry")

// pullError gives a failed pull its class. A registry that does not answer has
// the prefix that kubelets look for.
func pullError(ref string, err error) error {
	var inStream *streamError
	// Some answers of the engine have a status of their own; 500 stands for
	// "the registry said something".
	known := errdefs.IsNotFound(err) || errdefs.IsInternal(err) || errdefs.IsUnknown(err) || errors.As(err, &inStream)
	if !known {
		return fmt.Errorf("pull image %s: %w", ref, err)
	}
	switch class := pullFailure(err.Error()); {
	case class == nil:
		return fmt.Errorf("pull image %s: %w", ref, err)
	case errors.Is(class, errRegistryUnavailable):
		return fmt.Errorf("RegistryUnavailable: pull image %s: %w", ref, &classified{err, errdefs.ErrUnavailable})
	default:
		return fmt.Errorf("pull image %s: %w", ref, &classified{err, class})
	}
}

func pullFailure(text string) error {
	text = strings.ToLower(text)
	for _, f := range pullFailures {
		for _, t := range f.texts {
			if strings.Contains(text, t) {
				return f.class
			}
		}
	}
	return nil
}

// classified is an error's text under another class; the engine's own class,
// which is "not found" for a refused login, no longer counts. It hides the
// class from errors.Unwrap: its text does not end with the name of one.
type classified struct{ err, class error }

func (c *classified) Error() string        { return c.err.Error() }
func (c *classified) Is(target error) bool { return errors.Is(c.class, target) }
