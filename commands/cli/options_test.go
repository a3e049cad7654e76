package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestClientOptions: flags and environment win over the config file, also with a zero value.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "crictl.yaml")
	if err := os.WriteFile(file, []byte("runtime-endpoint: /run/a.sock\nimage-endpoint: /run/b.sock\ntimeout: 10\nmax-retries: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		retries      int
		endpoint     string
		wantRetries  int
		wantEndpoint string
	}{
		{noRetries, "", 5, "/run/a.sock"},
		{0, "docker://", 0, "docker://"},
		{2, "", 2, "/run/a.sock"},
	} {
		c := NewConnector(NewInvocation(&Process{ConfigFile: file, LookupEnv: func(string) (string, bool) { return "", false }}, false))
		c.maxRetries = test.retries
		if test.endpoint != "" {
			c.runtimeEndpoints = []string{test.endpoint}
		}
		o, err := c.ClientOptions()
		if err != nil || o.MaxRetries != test.wantRetries || o.RuntimeEndpoint != test.wantEndpoint || o.ImageEndpoint != "/run/b.sock" || o.QueryTimeout != 10*time.Second {
			t.Errorf("%+v: got %+v, %v", test, o, err)
		}
	}
}
