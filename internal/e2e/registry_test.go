package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// registries are an open registry, and a private registry for the user "me" with the password "secret".
type registries struct{ open, private string }

// startRegistry serves a small image as app:1 in each of them, whose only program waits to
// be ended. Engines take a registry on 127.0.0.1 without TLS, so no test needs the internet.
func startRegistry(t *testing.T) registries {
	t.Helper()
	start := func(name string, wrap func(http.Handler) http.Handler) string {
		inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		push(t, inner, name)
		server := httptest.NewServer(wrap(inner))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	open := start("open", func(h http.Handler) http.Handler { return h })
	return registries{open, start("private", withLogin)}
}

// push pushes app:1. The name makes the image of each registry different.
func push(t *testing.T, to http.Handler, name string) {
	t.Helper()
	layer := smallLayer(t)
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","config":{"Cmd":["/pause"],"Labels":{"registry":%q}},"rootfs":{"type":"layers","diff_ids":[%q]}}`,
		goruntime.GOARCH, name, digest(layer))
	for _, blob := range [][]byte{layer, config} {
		upload(t, to, http.MethodPost, "/v2/app/blobs/uploads/?digest="+digest(blob), "application/octet-stream", blob)
	}
	const docker = "application/vnd.docker."
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,
		"config":{"mediaType":%q,"size":%d,"digest":%q},
		"layers":[{"mediaType":%q,"size":%d,"digest":%q}]}`,
		docker+"distribution.manifest.v2+json", docker+"container.image.v1+json", len(config), digest(config),
		docker+"image.rootfs.diff.tar", len(layer), digest(layer))
	upload(t, to, http.MethodPut, "/v2/app/manifests/1", docker+"distribution.manifest.v2+json", manifest)
}

func withLogin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user == "me" && password == "secret" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
	})
}

func smallLayer(t *testing.T) []byte {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	program, err := os.ReadFile("shim/pause/pause-" + goruntime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []struct {
		name string
		mode int64
		text []byte
	}{{"motd", 0o644, []byte("pulled\n")}, {"pause", 0o755, program}} {
		if err := w.WriteHeader(&tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(file.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func upload(t *testing.T, to http.Handler, method, path, mediaType string, body []byte) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", mediaType)
	answer := httptest.NewRecorder()
	to.ServeHTTP(answer, request)
	if answer.Code != http.StatusCreated {
		t.Fatalf("%s %s: got %d, want 201", method, path, answer.Code)
	}
}
