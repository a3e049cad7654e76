package kuberuntime

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/status"
	criapierrors "k8s.io/cri-api/pkg/errors"

	"github.com/crishim/crishim/client"
)

// pullErrorName keeps the runtime's own name of a failure where it has one: the CRI puts it
// at the start of the message, and a client may have worded that anew.
func pullErrorName(err error) error {
	for ; err != nil; err = errors.Unwrap(err) {
		for _, named := range []error{criapierrors.ErrRegistryUnavailable, criapierrors.ErrSignatureValidationFailed} {
			if strings.HasPrefix(status.Convert(err).Message(), named.Error()) {
				return named
			}
		}
	}
	return ErrImagePull
}

// several are the failures of attempts at one thing, in one line. Attempts that failed alike
// are told of once.
type several []error

// inOneLine is what went wrong in several attempts; nil where nothing did.
func inOneLine(errs ...error) error {
	var out several
	for _, err := range errs {
		if err != nil && !slices.ContainsFunc(out, func(e error) bool { return e.Error() == err.Error() }) {
			out = append(out, err)
		}
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return out
}

func (s several) Error() string {
	var texts []string
	for _, err := range s {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (s several) Unwrap() []error { return s }

// refusedError is a pull that failed for its login.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// Hint is the next step.
func (e *refusedError) Hint() string {
	return "name a Secret with a login for this registry in imagePullSecrets, or log in on this host with `docker login`"
}

// withPullHint adds what to do about a refused login.
func withPullHint(err error) error {
	if err != nil && client.IsRefused(err) {
		return &refusedError{err}
	}
	return err
}
