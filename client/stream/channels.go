package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// channels are the streams of one remote command over whatever transport.
type channels struct {
	stdin          io.WriteCloser // Close is the half-close
	stdout, stderr io.Reader      // nil when not asked for
	status         io.Reader      // ends when the status is complete
	resize         io.Writer      // nil without a terminal
	close          func()         // ends everything, in whatever state
}

// setSize tells the remote terminal its size.
func (c *channels) setSize(s size) error {
	if c.resize == nil || s.Width == 0 || s.Height == 0 {
		return nil
	}
	return json.NewEncoder(c.resize).Encode(s)
}

// size is a terminal's, spelt as on the wire.
type size struct {
	Width, Height uint16
}

// openChannels dials with the transport that was asked for.
func openChannels(ctx context.Context, raw string, s Streams, first size, o Options) (*channels, error) {
	u, err := completeURL(raw, o.Base)
	if err != nil {
		return nil, err
	}
	if o.Transport == TransportWebSocket {
		return openWebSocket(ctx, u, s, first, o)
	}
	ch, err := openSPDY(ctx, u, s, first, o)
	var refused *UpgradeError
	if o.Transport == TransportSPDY || !errors.As(err, &refused) || refused.Code == http.StatusNotFound {
		return ch, err
	}
	again, urlErr := freshURL(ctx, u, o)
	if urlErr != nil {
		return nil, err
	}
	ch, wsErr := openWebSocket(ctx, again, s, first, o)
	if wsErr != nil {
		return nil, fmt.Errorf("neither SPDY nor WebSocket: %w; %w", err, wsErr)
	}
	return ch, nil
}

// freshURL is a URL for another attempt: the same one when nobody can give
// another, as a server may refuse an upgrade before it uses the token up.
func freshURL(ctx context.Context, used *url.URL, o Options) (*url.URL, error) {
	if o.FreshURL == nil {
		return used, nil
	}
	raw, err := o.FreshURL(ctx)
	if err != nil {
		return nil, err
	}
	return completeURL(raw, o.Base)
}
