package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestToStatus(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("while testing: %w", err) }
	for name, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"nothing":                    {nil, codes.OK},
		"not found":                  {wrap(errdefs.ErrNotFound), codes.NotFound},
		"invalid":                    {wrap(errdefs.ErrInvalidArgument), codes.InvalidArgument},
		"exists":                     {wrap(errdefs.ErrAlreadyExists), codes.AlreadyExists},
		"conflict":                   {wrap(errdefs.ErrConflict), codes.FailedPrecondition},
		"precondition":               {wrap(errdefs.ErrFailedPrecondition), codes.FailedPrecondition},
		"permission":                 {wrap(errdefs.ErrPermissionDenied), codes.PermissionDenied},
		"unauthorized":               {wrap(errdefs.ErrUnauthenticated), codes.Unauthenticated},
		"exhausted":                  {wrap(errdefs.ErrResourceExhausted), codes.ResourceExhausted},
		"not implemented":            {wrap(errdefs.ErrNotImplemented), codes.Unimplemented},
		"unavailable":                {wrap(errdefs.ErrUnavailable), codes.Unavailable},
		"internal":                   {wrap(errdefs.ErrInternal), codes.Internal},
		"cancelled":                  {wrap(context.Canceled), codes.Canceled},
		"deadline":                   {wrap(context.DeadlineExceeded), codes.DeadlineExceeded},
		"the engine is away":         {wrap(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), codes.Unavailable},
		"a status of its own":        {status.Error(codes.DataLoss, "x"), codes.DataLoss},
		"a status in a sentence":     {wrap(status.Error(codes.OutOfRange, "x")), codes.OutOfRange},
		"several, the first counts":  {errors.Join(wrap(errdefs.ErrNotFound), errdefs.ErrInternal), codes.NotFound},
		"an error without any class": {errors.New("x"), codes.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := toStatus(t.Context(), c.err)
			if status.Code(got) != c.want {
				t.Errorf("got %v, want %v", status.Code(got), c.want)
			}
			if c.err != nil && !errors.Is(c.err, status.Error(codes.DataLoss, "x")) && status.Convert(got).Message() == "" {
				t.Error("the message is lost")
			}
		})
	}
}

func TestToStatusOfACancelledRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := status.Code(toStatus(ctx, errors.New("connection cut"))); got != codes.Canceled {
		t.Errorf("got %v, want Canceled", got)
	}
}

func TestClassIsLeftOutOfTheSentence(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("no such thing: %w", errdefs.ErrNotFound), "no such thing"},
		{fmt.Errorf("stop: %w", fmt.Errorf("too soon: %w", errdefs.ErrFailedPrecondition)), "stop: too soon"},
		{errors.New("the engine said: not found"), "the engine said: not found"},
		{errdefs.ErrNotFound, "not found"},
		{fmt.Errorf("%w: %w", errors.New("several"), errdefs.ErrInternal), "several"},
		{fmt.Errorf("pull x: %w", engineSays{"unauthorized", errdefs.ErrUnauthenticated}), "pull x: unauthorized"},
	} {
		if got := status.Convert(toStatus(t.Context(), tc.err)).Message(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// engineSays is an error of the engine's client: its text is the engine's, its class is
// beside it.
type engineSays struct {
	text  string
	class error
}

func (e engineSays) Error() string        { return e.text }
func (e engineSays) Is(target error) bool { return errors.Is(e.class, target) }
