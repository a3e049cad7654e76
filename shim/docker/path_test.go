package docker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestNamesDoNotLeaveTheirPath(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/_ping") {
			asked <- r.URL.Path
		}
		w.Header().Set("Api-Version", "1.41")
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	c, err := New(Options{Host: "tcp://" + strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, name := range []string{"..", "../info", "a/../../info", "./x", "a/.."} {
		if _, err := c.ImageInspect(t.Context(), name); !errdefs.IsNotFound(err) {
			t.Errorf("image %q: got %v", name, err)
		}
		if _, err := c.ContainerInspect(t.Context(), name); !errdefs.IsNotFound(err) {
			t.Errorf("container %q: got %v", name, err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("the engine was asked for %s", <-asked)
	}
	for _, name := range []string{"a", "reg.example:5000/a/b.c:v1..2", "...", "sha256:00"} {
		if err := checkName("image", name); err != nil {
			t.Errorf("%q: got %v", name, err)
		}
	}
}
