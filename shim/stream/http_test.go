package stream

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tokens tokens
		served := ""
		add := func(name string) string {
			path, err := tokens.add("exec", func(http.ResponseWriter, *http.Request) { served = name })
			if err != nil {
				t.Fatal(err)
			}
			return path
		}
		path := add("request")
		if token, ok := strings.CutPrefix(path, "/exec/"); !ok || len(token) < 128/5 { // five bits per letter
			t.Errorf("got %q, want 128 bits that fit a URL", path)
		}
		if serve, ok := tokens.take(path); ok {
			serve(nil, nil)
		}
		if served != "request" {
			t.Errorf("first use: got %q", served)
		}
		if _, ok := tokens.take(path); ok {
			t.Error("it is good for a second use")
		}
		late, soon := add("late"), add("soon")
		time.Sleep(59 * time.Second)
		if _, ok := tokens.take(soon); !ok {
			t.Error("it is not good for a minute")
		}
		time.Sleep(2 * time.Second)
		if _, ok := tokens.take(late); ok {
			t.Error("it is good for more than a minute")
		}
	})
}

func TestTokensAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tokens tokens
		for range maxRequests {
			if _, err := tokens.add("exec", nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tokens.add("exec", nil); !errdefs.IsResourceExhausted(err) {
			t.Errorf("one too many: got %v, want ResourceExhausted", err)
		}
		time.Sleep(tokenLife + time.Second)
		if _, err := tokens.add("exec", nil); err != nil {
			t.Errorf("after the others expired: %v", err)
		}
		time.Sleep(tokenLife + time.Second)
	})
}
