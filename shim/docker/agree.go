package docker

import "context"

// agree negotiates the API version before the first call.
//
// The library would do so by itself, but it writes the version while calls
// whose own negotiation failed read it: a data race wherever two first calls
// run at once.
func (c *Client) agree(ctx context.Context) error {
	if c.agreed.Load() {
		return nil
	}
	select {
	case c.agreeing <- struct{}{}:
		defer func() { <-c.agreeing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.agreed.Load() {
		return nil
	}
	ping, err := c.Ping(ctx)
	if err != nil {
		return err
	}
	c.NegotiateAPIVersionPing(ping)
	c.agreed.Store(true)
	return nil
}
