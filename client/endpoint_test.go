package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/client"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	unix := func(path string) client.Endpoint { return client.Endpoint{Network: "unix", Address: path} }
	tests := []struct {
		in   string
		want client.Endpoint
		out  string // normal form; "" if it equals the input
	}{
		{"unix:///run/x.sock", unix("/run/x.sock"), ""},
		{"UNIX:///run/x.sock", unix("/run/x.sock"), "unix:///run/x.sock"},
		{"unix:/run/x.sock", unix("/run/x.sock"), "unix:///run/x.sock"},
		{"/run/x.sock", unix("/run/x.sock"), "unix:///run/x.sock"},
		{"/run//y/../x.sock", unix("/run/x.sock"), "unix:///run/x.sock"},
		{"/run/a:b.sock", unix("/run/a:b.sock"), "unix:///run/a:b.sock"},
		{"./x.sock", unix(filepath.Join(dir, "x.sock")), "unix://" + filepath.Join(dir, "x.sock")},
		{"x.sock", unix(filepath.Join(dir, "x.sock")), "unix://" + filepath.Join(dir, "x.sock")},
		{"tcp://127.0.0.1:1234", client.Endpoint{Network: "tcp", Address: "127.0.0.1:1234"}, ""},
		{"tcp://[::1]:1234/", client.Endpoint{Network: "tcp", Address: "[::1]:1234"}, "tcp://[::1]:1234"},
		{"ssh://joe@host/run/x.sock", client.Endpoint{Network: "ssh", Address: "joe@host", Path: "/run/x.sock"}, ""},
		{"ssh://joe@host", client.Endpoint{Network: "ssh", Address: "joe@host"}, ""},
		{"ssh://host:2222/run/x.sock", client.Endpoint{Network: "ssh", Address: "host:2222", Path: "/run/x.sock"}, ""},
		{"docker://", client.Endpoint{Docker: true}, ""},
		{"docker:", client.Endpoint{Docker: true}, "docker://"},
		{"docker:///var/run/docker.sock", client.Endpoint{Docker: true, Network: "unix", Address: "/var/run/docker.sock"}, ""},
		{"docker+unix:///d.sock", client.Endpoint{Docker: true, Network: "unix", Address: "/d.sock"}, "docker:///d.sock"},
		{"docker+tcp://host:2375", client.Endpoint{Docker: true, Network: "tcp", Address: "host:2375"}, ""},
		{"docker+ssh://joe@host", client.Endpoint{Docker: true, Network: "ssh", Address: "joe@host"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			t.Parallel()
			got, err := client.ParseEndpoint(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			want := tt.out
			if want == "" {
				want = tt.in
			}
			if got.String() != want {
				t.Errorf("written as %s, want %s", got, want)
			}
		})
	}
}

func TestEndpointMistakes(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"", "must not be empty"},
		{"unix://", "must be an absolute path"},
		{"unix://run/x.sock", "must be an absolute path"},
		{"/", "must name a socket"},
		{"unix:///" + strings.Repeat("x", 107), "at most 107 bytes, not 108"},
		{"tcp://host", "must have a host and a port"},
		{"tcp://h:http", "must have a host and a port"},
		{"tcp://h:65536", "must have a host and a port"},
		{"tcp://:1", "must have a host and a port"},
		{"tcp://h:1/path", "must have a host and a port"},
		{"npipe:////./pipe/x", "unknown scheme"},
		{"https://host", "not for HTTP"},
		{"docker://host:2375", "docker+tcp://host:port"},
		{"docker+npipe://x", "unknown scheme"},
		{"dockertcp://h:1", "unknown scheme"},
		{"docker+http://x:1", "not for HTTP"},
		{"docker+ssh://host/run/docker.sock", "must not have a path"},
		{"docker", "must be a URL or the path of a socket"},
		{"crio", "must be a URL or the path of a socket"},
		{"ssh:///run/x.sock", "must have a host"},
		{"ssh://joe:secret@host/x", `"ssh://joe:***@host/x": must not contain a password`},
		{"https://joe:s@e/cret@host", `"https://joe:***@host": must be an address for CRI, not for HTTP`},
		{"joe:secret@host", `"joe:***@host": unknown scheme`},
		{"ssh://joe@corp:secret@host", `"ssh://joe@corp:***@host": must not contain a password`},
		{"ssh://-oProxyCommand=x/y", "must not begin with a dash"},
		{"/run/\x1b[2Jx", "control characters"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			t.Parallel()
			_, err := client.ParseEndpoint(tt.in)
			var usage *client.SyntaxError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.want) || usage.Hint() == "" {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
