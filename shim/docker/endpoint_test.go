package docker

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crishim/crishim/internal/test"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// home creates a home directory with a docker configuration.
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
		write(filepath.Join(dir, fmt.Sprintf(".docker/contexts/meta/%x/meta.json", sha256.Sum256([]byte(name)))), meta)
	}
	return dir
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		v, ok := env[key]
		return v, ok
	}
}

// Endpoints follows docker's own order. An endpoint named by the user is the only candidate.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	remote := `{"Name":"far","Endpoints":{"docker":{"Host":"tcp://far:2376","SkipTLSVerify":true}}}`
	withContext := home(t, `{"auths":{},"currentContext":"far"}`, map[string]string{"far": remote})
	noJSON, otherShape := home(t, `{`, nil), home(t, `[]`, nil)
	run := test.SocketDir(t)
	desktop := test.SocketDir(t)
	if err := os.MkdirAll(filepath.Join(desktop, ".docker/desktop"), 0o700); err != nil {
		t.Fatal(err)
	}
	listen(t, filepath.Join(desktop, ".docker/desktop/docker.sock"))
	const system = "unix:///var/run/docker.sock"
	for name, c := range map[string]struct {
		host string
		env  map[string]string
		want []Endpoint
	}{
		"an explicit host wins": {
			"unix:///x", map[string]string{"HOME": withContext, "DOCKER_HOST": "tcp://y"}, []Endpoint{{Host: "unix:///x"}},
		},
		"then DOCKER_HOST with its TLS files": {
			"", map[string]string{"HOME": withContext, "DOCKER_HOST": "tcp://y", "DOCKER_CERT_PATH": "/c"},
			[]Endpoint{{Host: "tcp://y", From: "DOCKER_HOST", TLS: &tls.Config{InsecureSkipVerify: true}}},
		},
		"a socket has no TLS": {
			"", map[string]string{"DOCKER_HOST": "unix:///y", "DOCKER_CERT_PATH": "/c"}, []Endpoint{{Host: "unix:///y", From: "DOCKER_HOST"}},
		},
		"then the current context": {
			"", map[string]string{"HOME": withContext},
			[]Endpoint{{Host: "tcp://far:2376", From: `the current docker context "far"`, TLS: &tls.Config{InsecureSkipVerify: true}}},
		},
		"a configuration elsewhere": {
			"", map[string]string{"HOME": "/nonexistent", "DOCKER_CONFIG": filepath.Join(withContext, ".docker")},
			[]Endpoint{{Host: "tcp://far:2376", From: `the current docker context "far"`, TLS: &tls.Config{InsecureSkipVerify: true}}},
		},
		"DOCKER_CONTEXT goes before it": {
			"", map[string]string{"HOME": noJSON, "DOCKER_CONTEXT": "far", "DOCKER_CONFIG": filepath.Join(withContext, ".docker")},
			[]Endpoint{{Host: "tcp://far:2376", From: `DOCKER_CONTEXT "far"`, TLS: &tls.Config{InsecureSkipVerify: true}}},
		},
		"DOCKER_CONTEXT may turn it off": {
			"", map[string]string{"HOME": withContext, "DOCKER_CONTEXT": "default", "XDG_RUNTIME_DIR": run},
			[]Endpoint{{Host: system}, {Host: "unix://" + run + "/docker.sock"}},
		},
		"Docker's desktop where it is": {
			"", map[string]string{"HOME": desktop}, []Endpoint{{Host: system}, {Host: "unix://" + desktop + "/.docker/desktop/docker.sock"}},
		},
		"nothing": {"", nil, []Endpoint{{Host: system}}},
		"a configuration that is no JSON, as docker does": {
			"", map[string]string{"HOME": noJSON}, []Endpoint{{Host: system, From: "the default docker context (parsing config file (" + noJSON + "/.docker/config.json): unexpected EOF)"}},
		},
		"a configuration of another shape": {
			"", map[string]string{"HOME": otherShape}, []Endpoint{{Host: system, From: "the default docker context (parsing config file (" + otherShape + "/.docker/config.json): json: cannot unmarshal array into Go value of type configfile.ConfigFile)"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Endpoints(c.host, lookup(c.env))
			for i := range got {
				if got[i].TLS != nil {
					got[i].TLS = &tls.Config{InsecureSkipVerify: got[i].TLS.InsecureSkipVerify}
				}
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(tls.Config{})); diff != "" {
				t.Errorf("got + instead of -:\n%s", diff)
			}
		})
	}
}

// serve takes an existing socket, whatever its precedence. Without HOME no files in the working directory are used.
func TestEndpointsWithoutHome(t *testing.T) {
	dir := test.SocketDir(t)
	t.Chdir(dir)
	for _, d := range []string{".docker/run", "contexts"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	listen(t, filepath.Join(dir, ".docker/run/docker.sock"))
	for _, e := range Endpoints("", lookup(nil)) {
		if strings.Contains(e.Host, ".docker") {
			t.Errorf("got %s", e.Host)
		}
	}
	for _, env := range []map[string]string{
		{"DOCKER_HOST": "tcp://far:2376", "DOCKER_TLS_VERIFY": "1"},
		{"DOCKER_CONTEXT": "far"},
	} {
		if e := Endpoints("", lookup(env)); len(e) != 1 || e[0].Err == nil || !strings.Contains(e[0].Err.Error(), "HOME") {
			t.Errorf("%v: got %v", env, e)
		}
	}
}

func TestResolveTakesTheSocketThatExists(t *testing.T) {
	t.Parallel()
	run := test.SocketDir(t)
	env := lookup(map[string]string{"XDG_RUNTIME_DIR": run})
	want := "unix:///var/run/docker.sock"
	for range 2 {
		if got, err := resolve(Options{LookupEnv: env}); err != nil || got.Host != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
		listen(t, run+"/docker.sock")
		if !isSocket(want) {
			want = "unix://" + run + "/docker.sock"
		}
	}
	found := Endpoint{Host: "tcp://x", Err: errors.New("no way")}
	if got, err := resolve(Options{Endpoint: &found, Host: "unix:///y"}); got != found || err == nil {
		t.Errorf("one that was found: got %v, %v", got, err)
	}
}

func TestResolveNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const tcp = `{"Endpoints":{"docker":{"Host":"tcp://far:2376"}}}`
	for name, c := range map[string]struct {
		meta, ca string
		env      map[string]string
		want     string
	}{
		"a context that is not there":    {want: `docker context "far"`},
		"a context without an endpoint":  {meta: `{}`, want: `docker context "far" has no address of a Docker engine`},
		"a context that is damaged":      {meta: `{`, want: `docker context "far"`},
		"a context with a damaged CA":    {meta: tcp, ca: "x", want: "TLS for the docker engine: "},
		"verification without a CA":      {env: map[string]string{"DOCKER_HOST": "tcp://y", "DOCKER_TLS_VERIFY": "1"}, want: "/.docker/ca.pem"},
		"verification with a damaged CA": {env: map[string]string{"DOCKER_HOST": "tcp://y", "DOCKER_TLS_VERIFY": "1"}, ca: "x", want: "/.docker/ca.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contexts := map[string]string{}
			if c.meta != "" {
				contexts["far"] = c.meta
			}
			env := map[string]string{"HOME": home(t, `{"currentContext":"far"}`, contexts)}
			maps.Copy(env, c.env)
			if c.ca != "" {
				dir := filepath.Join(env["HOME"], ".docker")
				if c.meta != "" {
					dir += fmt.Sprintf("/contexts/tls/%x/docker", sha256.Sum256([]byte("far")))
				}
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(c.ca), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := resolve(Options{LookupEnv: lookup(env)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	dir := test.SocketDir(t)
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

// If an engine dies during a call, the error is "unreachable".
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
	_, err = c.Info(t.Context())
	if !IsUnreachable(err) {
		t.Errorf("got %v (%T), want unreachable", err, err)
	}
	if text := Text(fmt.Errorf("look: %w", err)); !strings.HasPrefix(text, "look: error during connect: ") || strings.Contains(text, "http") {
		t.Errorf("got %q, want no URL in it", text)
	}
}

func TestCheckAPI(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{"1.39": false, "1.40": true, "1.51": true, "1.9": false} {
		if got := checkAPI(version) == nil; got != ok {
			t.Errorf("%s: got %v, want %v", version, got, ok)
		}
	}
}
