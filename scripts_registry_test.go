package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// startRegistry serves one small image as app:1 for pull and rmi. Engines take a registry on
// 127.0.0.1 without TLS, so no test needs the internet.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	layer := oneFileLayer(t)
	config := fmt.Appendf(nil, `{"architecture":%q,"os":"linux","config":{"Cmd":["/motd"]},"rootfs":{"type":"layers","diff_ids":[%q]}}`,
		goruntime.GOARCH, digest(layer))
	for _, blob := range [][]byte{layer, config} {
		upload(t, http.MethodPost, server.URL+"/v2/app/blobs/uploads/?digest="+digest(blob), "application/octet-stream", blob)
	}
	const docker = "application/vnd.docker."
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,
		"config":{"mediaType":%q,"size":%d,"digest":%q},
		"layers":[{"mediaType":%q,"size":%d,"digest":%q}]}`,
		docker+"distribution.manifest.v2+json", docker+"container.image.v1+json", len(config), digest(config),
		docker+"image.rootfs.diff.tar", len(layer), digest(layer))
	upload(t, http.MethodPut, server.URL+"/v2/app/manifests/1", docker+"distribution.manifest.v2+json", manifest)
	return server.Listener.Addr().String()
}

func oneFileLayer(t *testing.T) []byte {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	text := []byte("pulled\n")
	if err := w.WriteHeader(&tar.Header{Name: "motd", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func upload(t *testing.T, method, url, mediaType string, body []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", mediaType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s: got %s, want 201", method, url, response.Status)
	}
}
