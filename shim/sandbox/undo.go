package sandbox

import (
	"context"
	"errors"
	"time"
)

// cleanupTime bounds clean-up, which goes on when the request is gone.
const cleanupTime = 2 * time.Minute

// undo is the list of what to take back when a request fails half-way.
type undo []func(context.Context) error

func (u *undo) add(f func(context.Context) error) { *u = append(*u, f) }

// run takes everything back, the last first, and adds what went wrong to err.
// It works on a context of its own: the request's may be the reason for err.
func (u undo) run(ctx context.Context, err error) error {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	for i := len(u) - 1; i >= 0; i-- {
		err = errors.Join(err, u[i](ctx))
	}
	return err
}

func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}
