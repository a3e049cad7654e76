package shim

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestProfiles(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "profile.sock")
	p, err := startProfiles(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info, err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get("http://profiles" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	status, index := get("/debug/pprof/")
	links := regexp.MustCompile(`href='([a-z]+)\?`).FindAllStringSubmatch(index, -1)
	if status != 200 || len(links) < 8 {
		t.Fatalf("the index: got %d, %s", status, index)
	}
	for _, link := range links { // all listed profiles exist
		path := "/debug/pprof/" + link[1]
		if link[1] == "profile" || link[1] == "trace" {
			path += "?seconds=1"
		}
		if status, body := get(path); status != 200 || body == "" {
			t.Errorf("%s: got %d with %d bytes", link[1], status, len(body))
		}
	}
	if _, again := get("/debug/pprof"); again == "" || !strings.Contains(again, `href='heap`) {
		t.Errorf("without the slash: got %s", again)
	}
	if _, text := get("/debug/pprof/goroutine?debug=1"); !strings.HasPrefix(text, "goroutine profile: total ") {
		t.Errorf("as text: got %.80q", text)
	}
	if status, _ := get("/debug/pprof/nothing"); status != http.StatusNotFound {
		t.Errorf("a profile that does not exist: got status %d", status)
	}
	client.CloseIdleConnections()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}
