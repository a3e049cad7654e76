package stream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	forwardProtocol = "portforward.k8s.io"
	// The streams of a tunnel have no flow control: an unread connection blocks the others in its tunnel. The first
	// ownTunnels connections therefore get their own tunnels. Later ones share, because a tunnel costs nearly a
	// megabyte on each side.
	ownTunnels = 16
	perTunnel  = 8
	keptIdle   = 2
)

// tunnel is a streaming connection that carries forwarded connections.
type tunnel struct {
	*spdyConn
	users   int          // connections; guarded by the pool
	spoiled atomic.Bool  // accepts no new connections
	stalled atomic.Int32 // connections whose local side does not read
}

func (t *tunnel) broken() bool {
	select {
	case <-t.CloseChan():
		return true
	default:
		return false
	}
}

// usable reports whether the tunnel can take another connection.
func (t *tunnel) usable() bool {
	return t.users < perTunnel && !t.spoiled.Load() && t.stalled.Load() == 0
}

// pool holds the tunnels of all connections. It keeps up to keptIdle unused tunnels for later connections.
type pool struct {
	url func(ctx context.Context) (string, error)
	o   Options

	// dialing is held during a dial. If there are already ownTunnels, a burst of connections then shares the new tunnel.
	dialing sync.Mutex

	mu     sync.Mutex
	live   []*tunnel
	closed bool
}

// get reserves a place in a tunnel and opens a tunnel if needed.
func (p *pool) get(ctx context.Context) (*tunnel, error) {
	if t := p.free(); t != nil {
		return t, nil
	}
	p.dialing.Lock()
	defer p.dialing.Unlock()
	if t := p.free(); t != nil {
		return t, nil
	}
	t, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		go t.close()
		return nil, context.Canceled
	}
	p.live = append(p.live, t)
	return t, nil
}

func (p *pool) dial(ctx context.Context) (*tunnel, error) {
	raw, err := p.url(ctx)
	if err != nil {
		return nil, err
	}
	u, err := completeURL(raw)
	if err != nil {
		return nil, err
	}
	conn, err := dialSPDY(ctx, u, p.o, forwardProtocol)
	if err != nil {
		return nil, fmt.Errorf("open tunnel: %w", err)
	}
	return &tunnel{spdyConn: conn, users: 1}, nil
}

// free reserves a place in a working tunnel and removes broken tunnels. It prefers an unused tunnel. Connections share
// a tunnel only if there are at least ownTunnels tunnels.
func (p *pool) free() *tunnel {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = slices.DeleteFunc(p.live, func(t *tunnel) bool {
		if t.broken() {
			_ = t.raw.Close() // already broken
			return true
		}
		return false
	})
	var found *tunnel
	for _, t := range p.live {
		if t.usable() && (found == nil || t.users < found.users) {
			found = t
		}
	}
	if found == nil || found.users > 0 && len(p.live) < ownTunnels {
		return nil
	}
	found.users++
	return found
}

func (p *pool) put(t *tunnel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.users--
	if t.users > 0 || t.usable() && p.idle() <= keptIdle {
		return
	}
	p.live = slices.DeleteFunc(p.live, func(l *tunnel) bool { return l == t })
	go t.close()
}

func (p *pool) idle() int {
	n := 0
	for _, t := range p.live {
		if t.users == 0 {
			n++
		}
	}
	return n
}

func (p *pool) close() {
	p.mu.Lock()
	live := p.live
	p.live, p.closed = nil, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, t := range live {
		wg.Go(t.close)
	}
	wg.Wait()
}
