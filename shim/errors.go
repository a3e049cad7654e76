package shim

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/shim/docker"
)

// errorCodes maps classes of errors to codes. The first that fits counts.
var errorCodes = []struct {
	is   func(error) bool
	code codes.Code
}{
	{errdefs.IsNotFound, codes.NotFound},
	{errdefs.IsInvalidArgument, codes.InvalidArgument},
	{errdefs.IsAlreadyExists, codes.AlreadyExists},
	{errdefs.IsFailedPrecondition, codes.FailedPrecondition},
	{errdefs.IsConflict, codes.FailedPrecondition},
	{errdefs.IsPermissionDenied, codes.PermissionDenied},
	{errdefs.IsUnauthorized, codes.Unauthenticated},
	{errdefs.IsResourceExhausted, codes.ResourceExhausted},
	{errdefs.IsNotImplemented, codes.Unimplemented},
	{errdefs.IsUnavailable, codes.Unavailable},
	{errdefs.IsAborted, codes.Aborted},
	{errdefs.IsOutOfRange, codes.OutOfRange},
	{errdefs.IsDataLoss, codes.DataLoss},
	{errdefs.IsInternal, codes.Internal},
}

// errorClasses are the sentinels that errors of the shim end with.
var errorClasses = []error{
	errdefs.ErrNotFound, errdefs.ErrInvalidArgument, errdefs.ErrAlreadyExists, errdefs.ErrFailedPrecondition, errdefs.ErrConflict,
	errdefs.ErrPermissionDenied, errdefs.ErrUnauthenticated, errdefs.ErrResourceExhausted, errdefs.ErrNotImplemented,
	errdefs.ErrUnavailable, errdefs.ErrAborted, errdefs.ErrInternal, errdefs.ErrUnknown,
}

// toStatus gives an error the code that a CRI client can act on.
func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codeOf(ctx, err), sentence(err))
}

// sentence leaves out the name of the class at the end of an error: the code
// says it. Only a sentinel that the error really ends with is cut off: an
// engine's own last word may be the same, and is all that it said.
func sentence(err error) string {
	text := docker.Text(err)
	last := lastOf(err)
	for _, class := range errorClasses {
		if short, ok := strings.CutSuffix(text, ": "+class.Error()); ok && last == class { //nolint:errorlint // the sentinel itself
			return short
		}
	}
	return text
}

// worded is an error for people: it does not name its class at the end.
type worded struct{ error }

func (w worded) Error() string { return sentence(w.error) }

func (w worded) Unwrap() error { return w.error }

// lastOf is the error at the end of a chain, where fmt.Errorf puts the last %w.
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

func codeOf(ctx context.Context, err error) codes.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled), errors.Is(ctx.Err(), context.Canceled):
		return codes.Canceled
	case docker.IsUnreachable(err):
		return codes.Unavailable
	}
	for _, c := range errorCodes {
		if c.is(err) {
			return c.code
		}
	}
	return codes.Unknown
}
