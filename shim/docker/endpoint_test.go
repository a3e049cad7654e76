package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// home is a home directory with a docker configuration in it.
func home(t *testing.T, config string, contexts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, content string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if config != "" {
		write(filepath.Join(dir, ".docker/config.json"), config)
	}
	for name, meta := range contexts {
		sum := sha256.Sum256([]byte(name))
		write(filepath.Join(dir, ".docker/contexts/meta", hex.EncodeToString(sum[:]), "meta.json"), meta)
	}
	return dir
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		v, ok := env[key]
		return v, ok
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	remote := `{"Endpoints":{"docker":{"Host":"tcp://far:2376","SkipTLSVerify":true}}}`
	withContext := home(t, `{"currentContext":"far"}`, map[string]string{"far": remote})
	for name, c := range map[string]struct {
		o    Options
		want Endpoint
	}{
		"an explicit host wins": {
			Options{Host: "unix:///x", Home: withContext, LookupEnv: lookup(map[string]string{"DOCKER_HOST": "tcp://y"})},
			Endpoint{Host: "unix:///x", Source: "given"},
		},
		"then DOCKER_HOST with its TLS files": {
			Options{Home: withContext, LookupEnv: lookup(map[string]string{"DOCKER_HOST": "tcp://y", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c"})},
			Endpoint{Host: "tcp://y", Source: "DOCKER_HOST", TLS: &TLS{CA: "/c/ca.pem", Cert: "/c/cert.pem", Key: "/c/key.pem"}},
		},
		"then the current context": {
			Options{Home: withContext, LookupEnv: lookup(nil)},
			Endpoint{Host: "tcp://far:2376", Source: "docker context far", TLS: &TLS{SkipVerify: true}},
		},
		"DOCKER_CONTEXT may turn it off": {
			Options{Home: withContext, LookupEnv: lookup(map[string]string{"DOCKER_CONTEXT": "default", "XDG_RUNTIME_DIR": "/nonexistent"})},
			Endpoint{Host: "unix://" + env{lookup: lookup(nil), home: withContext}.usualSocket(), Source: "default socket"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Resolve(c.o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("got + instead of -:\n%s", diff)
			}
		})
	}
}

func TestResolveNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, meta, want string }{
		"a context that is not there":      {`{"currentContext":"gone"}`, "", `docker context "gone"`},
		"a context without an endpoint":    {`{"currentContext":"far"}`, `{}`, "names no docker endpoint"},
		"a context that is damaged":        {`{"currentContext":"far"}`, `{`, `docker context "far"`},
		"a configuration that is no JSON":  {`{`, "", "config.json"},
		"a configuration of another shape": {`[]`, "", "config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contexts := map[string]string{}
			if c.meta != "" {
				contexts["far"] = c.meta
			}
			_, err := Resolve(Options{Home: home(t, c.config, contexts), LookupEnv: lookup(nil)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "crishim-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c, err := New(Options{Host: "unix://" + filepath.Join(dir, "none.sock"), LookupEnv: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Info(t.Context())
	if !IsUnreachable(err) {
		t.Errorf("no socket: got %v, want unreachable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Info(ctx); IsUnreachable(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if IsUnreachable(nil) || IsUnreachable(errors.New("x")) {
		t.Error("what is no connection error was taken for one")
	}
}

// An engine that dies in the middle of a call has not answered.
func TestAnEngineThatDiesIsUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1))
			conn.Close()
		}
	}()
	c, err := New(Options{Host: "tcp://" + l.Addr().String(), LookupEnv: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Info(t.Context()); !IsUnreachable(err) {
		t.Errorf("got %v (%T), want unreachable", err, err)
	}
}

func TestCheckAPI(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{"1.39": false, "1.40": true, "1.51": true, "1.9": false} {
		if got := CheckAPI(version) == nil; got != ok {
			t.Errorf("%s: got %v, want %v", version, got, ok)
		}
	}
}
