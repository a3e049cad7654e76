package shim

import (
	"context"
	"errors"

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

// toStatus gives an error the code that a CRI client can act on.
func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codeOf(ctx, err), docker.Text(err))
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
