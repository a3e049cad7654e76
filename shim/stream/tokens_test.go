package stream

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	tokens := newTokens(func() time.Time { return now })
	token, err := tokens.add("request")
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := base64.RawURLEncoding.DecodeString(token); err != nil || len(raw) != 16 {
		t.Errorf("token %q: got %d bytes, %v, want 128 bits that fit a URL", token, len(raw), err)
	}
	if got, ok := tokens.take(token); !ok || got != "request" {
		t.Errorf("first use: got %v, %v", got, ok)
	}
	if got, ok := tokens.take(token); ok {
		t.Errorf("second use: got %v", got)
	}
	late, err := tokens.add("late")
	if err != nil {
		t.Fatal(err)
	}
	soon, err := tokens.add("soon")
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(59 * time.Second)
	if got, ok := tokens.take(soon); !ok || got != "soon" {
		t.Errorf("within a minute: got %v, %v", got, ok)
	}
	now = now.Add(2 * time.Second)
	if got, ok := tokens.take(late); ok {
		t.Errorf("after a minute: got %v", got)
	}
}

func TestTokensAreLimited(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	tokens := newTokens(func() time.Time { return now })
	for range maxRequests {
		if _, err := tokens.add(1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tokens.add(1); !errdefs.IsResourceExhausted(err) {
		t.Errorf("one too many: got %v, want ResourceExhausted", err)
	}
	now = now.Add(tokenLife + time.Second)
	if _, err := tokens.add(1); err != nil {
		t.Errorf("after the others expired: %v", err)
	}
}
