package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// testRegistry is a registry on loopback, which a local engine uses without TLS. If user is set, it requires
// "user:secret".
type testRegistry struct {
	host  string
	inner http.Handler
	user  string
	// before replaces the handler for all requests. May be nil.
	before http.HandlerFunc
}

func newRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{inner: registry.New()}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		if r.user != "" && (user != r.user || password != "secret") {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		if r.before != nil {
			r.before(w, req)
			return
		}
		r.inner.ServeHTTP(w, req)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	r.host = strings.TrimPrefix(s.URL, "http://")
	return r
}

// push uploads a new image with one layer and returns its reference and digest.
func (r *testRegistry) push(t *testing.T, repository, tag string) (ref, digest string) {
	t.Helper()
	layer, packed := layer(t)
	config := encode(t, map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{"Cmd": []string{"/none"}, "User": "1234:5"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{sum(layer)}},
	})
	manifest := encode(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": descriptor("application/vnd.docker.container.image.v1+json", config),
		"layers": []any{descriptor("application/vnd.docker.image.rootfs.diff.tar.gzip", packed)},
	})
	for _, blob := range [][]byte{config, packed} {
		r.put(t, http.MethodPost, "/v2/"+repository+"/blobs/uploads/?digest="+sum(blob), blob)
	}
	r.put(t, http.MethodPut, "/v2/"+repository+"/manifests/"+tag, manifest)
	return fmt.Sprintf("%s/%s:%s", r.host, repository, tag), sum(manifest)
}

func (r *testRegistry) put(t *testing.T, method, path string, body []byte) {
	t.Helper()
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
	w := httptest.NewRecorder()
	r.inner.ServeHTTP(w, req)
	if w.Code != http.StatusCreated {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
}

// layer returns a tar archive with random content, plain and compressed.
func layer(t *testing.T) (plain, packed []byte) {
	t.Helper()
	content := []byte(rand.Text())
	var b, z bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "random", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	g := gzip.NewWriter(&z)
	if _, err := g.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), z.Bytes()
}

func descriptor(mediaType string, blob []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "size": len(blob), "digest": sum(blob)}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
