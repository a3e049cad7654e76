package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

func Timeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// refusal is an error of the transport itself: the engine is too old, or it has not answered within the time limit.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// Text returns an error's text without the method and URL of an HTTP request. It also removes an errdefs class at the
// end, for example ": not found", because the status code expresses the class. The engine's message may end with the
// same words, so the class is removed only if the innermost error is the errdefs error itself.
func Text(err error) string {
	text := err.Error()
	var request *url.Error
	if errors.As(err, &request) {
		before, after, _ := strings.Cut(text, request.Error())
		if errors.As(err, new(refusal)) { // the library adds "error during connect: " although the connection has not failed
			before = strings.TrimSuffix(before, "error during connect: ")
		}
		text = before + request.Err.Error() + after
	}
	last := lastOf(err)
	class := errdefs.Resolve(last)
	if class == last && class != context.Canceled && class != context.DeadlineExceeded { //nolint:errorlint // the sentinel itself
		return strings.TrimSuffix(text, ": "+class.Error())
	}
	return text
}

// lastOf returns the innermost error of a chain, following the last %w of each fmt.Errorf.
func lastOf(err error) error {
	for {
		next := errors.Unwrap(err)
		if several, ok := err.(interface{ Unwrap() []error }); ok && len(several.Unwrap()) > 0 {
			all := several.Unwrap()
			next = all[len(all)-1]
		}
		if next == nil {
			return err
		}
		err = next
	}
}

type Worded struct{ Err error }

func (w Worded) Error() string { return Text(w.Err) }

func (w Worded) Unwrap() error { return w.Err }

// checkAPI returns an error if an engine's API version is older than minAPI, like dockershim's checkVersionCompatibility.
func checkAPI(apiVersion string) error {
	if versions.LessThan(apiVersion, minAPI) {
		return fmt.Errorf("the docker engine speaks API %s, crishim needs %s or newer: upgrade the engine to 19.03 or newer: %w",
			apiVersion, minAPI, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func IsUnreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(refusal)) {
		return false
	}
	if client.IsErrConnectionFailed(err) {
		return true
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return true
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	}
	return false
}
