package reliability

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
)

// TestEngineGoesAwayInAPullOnEngine disconnects the engine during the download of a layer.
func TestEngineGoesAwayInAPullOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	proxy := startProxy(t, h.endpoint())
	s := startServe(t, proxy.Host)
	for name, endpoint := range map[string]string{"embedded": embedded(proxy.Host), "serve": s.endpoint()} {
		t.Run(name, func(t *testing.T) {
			r := startSlowRegistry(t, name)
			crishim := h.crishim(t, endpoint)
			dir := t.TempDir()
			crishim.env = append(crishim.env, "TMPDIR="+dir)
			ended := make(chan ended, 1)
			go func() { ended <- crishim.run(t.Context(), "pull", r.image) }()
			<-r.asked
			proxy.Down(true)
			got := <-ended
			proxy.Down(false)
			if got.code != 1 || got.out != "" || !strings.HasPrefix(got.err, "crishim: ") || strings.Contains(got.err, "rpc error") {
				t.Errorf("got %+v, want status 1 and why", got)
			}
			close(r.send)
			wait(t, func() error {
				if got := crishim.run(t.Context(), "pull", r.image); got.code != 0 {
					return fmt.Errorf("the next pull: %+v", got)
				}
				return nil
			})
			if got := crishim.run(t.Context(), "rmi", r.image); got.code != 0 {
				t.Errorf("rmi: %+v", got)
			}
			if got := crishim.run(t.Context(), "inspecti", r.image); got.code != 1 {
				t.Errorf("the image is left: %+v", got)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left in the temporary directory: %v, %v", left, err)
			}
		})
	}
	s.stop()
}

// slowRegistry has one image, whose layer the test releases.
type slowRegistry struct {
	image string
	asked chan struct{} // receives a value when the layer is requested
	send  chan struct{}
}

func startSlowRegistry(t *testing.T, name string) *slowRegistry {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","config":{"Cmd":["/none"]},"rootfs":{"type":"layers","diff_ids":[%q]}}`, goruntime.GOARCH, sum(layer.Bytes()))
	const docker = "application/vnd.docker."
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"size":%d,"digest":%q},"layers":[{"mediaType":%q,"size":%d,"digest":%q}]}`,
		docker+"distribution.manifest.v2+json", docker+"container.image.v1+json", len(config), sum(config),
		docker+"image.rootfs.diff.tar", layer.Len(), sum(layer.Bytes()))
	r := &slowRegistry{asked: make(chan struct{}, 1), send: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch path := q.URL.Path; {
		case path == "/v2/":
		case strings.HasPrefix(path, "/v2/app/manifests/"):
			w.Header().Set("Content-Type", docker+"distribution.manifest.v2+json")
			w.Header().Set("Docker-Content-Digest", sum(manifest))
			_, _ = w.Write(manifest)
		case path == "/v2/app/blobs/"+sum(config):
			_, _ = w.Write(config)
		case path == "/v2/app/blobs/"+sum(layer.Bytes()):
			select {
			case r.asked <- struct{}{}:
			default:
			}
			select {
			case <-r.send:
				_, _ = io.Copy(w, bytes.NewReader(layer.Bytes()))
			case <-q.Context().Done():
			}
		default:
			http.NotFound(w, q)
		}
	}))
	t.Cleanup(server.Close)
	r.image = server.Listener.Addr().String() + "/app:1"
	return r
}
