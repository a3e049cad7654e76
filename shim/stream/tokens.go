package stream

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

const (
	tokenBytes  = 16
	tokenLife   = time.Minute
	maxRequests = 1000
)

// tokens holds the requests whose URL has been handed out and not used yet.
type tokens struct {
	now func() time.Time

	mu   sync.Mutex
	open map[string]openRequest
}

type openRequest struct {
	request any
	expires time.Time
}

func newTokens(now func() time.Time) *tokens {
	return &tokens{now: now, open: map[string]openRequest{}}
}

// add keeps a request and returns the token that takes it out again, once.
func (t *tokens) add(request any) (string, error) {
	secret := make([]byte, tokenBytes)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("streaming token: %w", err)
	}
	token := base64.RawURLEncoding.EncodeToString(secret)

	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxRequests {
		t.dropExpired()
	}
	if len(t.open) >= maxRequests {
		return "", fmt.Errorf("%d streaming requests are waiting for their client, try again in a minute: %w",
			len(t.open), errdefs.ErrResourceExhausted)
	}
	t.open[token] = openRequest{request: request, expires: t.now().Add(tokenLife)}
	return token, nil
}

// take returns the request of a token and forgets it.
func (t *tokens) take(token string) (any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.open[token]
	delete(t.open, token)
	if !ok || t.now().After(r.expires) {
		return nil, false
	}
	return r.request, true
}

func (t *tokens) dropExpired() {
	now := t.now()
	for token, r := range t.open {
		if now.After(r.expires) {
			delete(t.open, token)
		}
	}
}
