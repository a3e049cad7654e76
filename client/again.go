package client

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
)

const (
	againPause = 100 * time.Millisecond
	againTimes = 5
)

// idempotent are the calls that the CRI lets one make again after success too.
func idempotent() []string {
	return []string{"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"}
}

// againInterceptor repeats a call that is idempotent where containerd's
// connection to the process beside the container was closed under it: that goes
// with the last process it has, often in the very moment in which it is told to
// end it. The container is as it was, or gone.
func againInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		for n := 1; n < againTimes && closedUnder(err) && slices.Contains(idempotent(), path.Base(method)); n++ {
			select {
			case <-time.After(againPause):
			case <-ctx.Done():
				return err
			}
			err = invoke(ctx, method, req, reply, cc, opts...)
		}
		return err
	}
}

func closedUnder(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ttrpc: closed")
}
