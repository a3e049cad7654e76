package stream

import (
	"fmt"
	"net/url"
	"path"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
)

// sessions are the execs whose client is connected, by token.
type sessions struct {
	mu   sync.Mutex
	open map[string]*atomic.Bool // whether the process outlives its client
}

func (s *sessions) add(token string) *atomic.Bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]*atomic.Bool{}
	}
	detached := new(atomic.Bool)
	s.open[token] = detached
	return detached
}

func (s *sessions) remove(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, token)
}

func (s *sessions) detach(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	detached, ok := s.open[token]
	if ok {
		detached.Store(true)
	}
	return ok
}

// Detach lets the process of an exec session go on when the client leaves. The
// session is named by its streaming URL, which nobody but its client knows.
func (s *Server) Detach(streamingURL string) error {
	u, err := url.Parse(streamingURL)
	if err != nil {
		return fmt.Errorf("streaming url: %w", errdefs.ErrInvalidArgument)
	}
	if !s.sessions.detach(path.Base(u.Path)) {
		return fmt.Errorf("no exec session has this url: %w", errdefs.ErrNotFound)
	}
	return nil
}
