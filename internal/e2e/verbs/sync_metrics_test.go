package verbs

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
)

// seen tells what was written first that fits a pattern.
type seen struct {
	pattern *regexp.Regexp
	first   chan string // has room for one
}

func (s seen) Write(p []byte) (int, error) {
	if m := s.pattern.FindSubmatch(p); m != nil {
		select {
		case s.first <- string(m[1]):
		default:
		}
	}
	return len(p), nil
}

// TestSyncGuardsItsMetrics asks for the metrics of a sync that runs, as a scraper, as a web page
// and with more than one would send.
func TestSyncGuardsItsMetrics(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	directory := t.TempDir()
	config := filepath.Join(t.TempDir(), "none.yaml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"CRI_CONFIG_FILE": config, "CONTAINER_RUNTIME_ENDPOINT": c.stub.Endpoint, "CRISHIM_ROOT": c.vars["CRISHIM_ROOT"]}
	errs := seen{regexp.MustCompile(`metrics at http://(\S+)/metrics`), make(chan string, 1)}
	env := &cli.Process{
		In: strings.NewReader(""), Out: t.Output(), Err: errs, Now: time.Now, Version: "v0.0.0-test", ConnectTimeout: time.Minute,
		LookupEnv: func(key string) (string, bool) { value, ok := vars[key]; return value, ok },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- commands.Main(ctx, []string{"crishim", "sync", "--metrics-addr", "127.0.0.1:0", directory}, env)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	var address string
	select {
	case address = <-errs.first:
	case code := <-ended:
		ended <- code
		t.Fatalf("sync ended with status %d", code)
	case <-time.After(time.Minute):
		t.Fatal("no metrics")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for _, tt := range []struct {
		host, header, value string
		want                int
	}{
		{"", "X-Scraper", "yes", 200},
		{"evil.example", "X-Scraper", "yes", 403},
		{"", "Origin", "http://evil.example", 403},
		{"", "X-Long", strings.Repeat("x", 16<<10), 431},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tt.host
		r.Header.Set(tt.header, tt.value)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("host %q, %s: got %d, want %d", tt.host, tt.header, resp.StatusCode, tt.want)
		}
	}
}
