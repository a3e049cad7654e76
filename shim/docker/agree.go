package docker

import (
	"context"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/client"
)

// Library is the library's client that speaks the version agreed on with the
// engine; the first call agrees.
//
// The library would do so by itself, but it writes the version while calls
// whose own negotiation failed read it: a data race wherever two first calls
// run at once.
func (c *Client) Library(ctx context.Context) (*client.Client, error) {
	if spoken := c.spoken.Load(); spoken != nil {
		return spoken, nil
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if spoken := c.spoken.Load(); spoken != nil {
		return spoken, nil
	}
	ping, err := c.first.Ping(ctx)
	if err == nil {
		err = checkPing(ping)
	}
	if err != nil {
		return nil, err
	}
	c.first.NegotiateAPIVersionPing(ping)
	c.spoken.Store(c.first)
	return c.first, nil
}

// Renegotiate asks the engine once more which API version it speaks, as one that
// was away may have been upgraded or put back. Calls that are under way keep the
// version that they began with.
func (c *Client) Renegotiate(ctx context.Context) error {
	before, err := c.Library(ctx)
	if err != nil {
		return err
	}
	ping, err := before.Ping(ctx) // in no version
	if err != nil {
		return err
	}
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	return c.speak(ping)
}

// speak changes to the version that an answer to a ping leads to. The library
// only ever goes down, and while calls read it, so that takes a client of its own.
func (c *Client) speak(ping types.Ping) error {
	if err := checkPing(ping); err != nil {
		c.spoken.Store(nil) // no call may go on in the version of the engine that was there before
		return err
	}
	next, err := c.endpoint.dialer()
	if err != nil {
		return err
	}
	next.NegotiateAPIVersionPing(ping)
	before := c.spoken.Load()
	if before == nil {
		c.spoken.Store(next)
		return nil
	}
	if next.ClientVersion() == before.ClientVersion() {
		return next.Close()
	}
	c.spoken.Store(next)
	return before.Close()
}

// checkPing refuses an engine that is too old before a call fails for a reason that
// nobody would look for there. What answers a ping without a version is no engine
// that is known to be too old.
func checkPing(ping types.Ping) error {
	if ping.APIVersion == "" {
		return nil
	}
	return CheckAPI(ping.APIVersion)
}

// ClientVersion is the API version that calls are made in, "" before the first.
func (c *Client) ClientVersion() string {
	if spoken := c.spoken.Load(); spoken != nil {
		return spoken.ClientVersion()
	}
	return ""
}

func (c *Client) lock(ctx context.Context) error {
	select {
	case c.agreeing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) unlock() { <-c.agreeing }
