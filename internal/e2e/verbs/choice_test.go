package verbs

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/shim"
)

// The socket of a Docker engine is taken as docker://, and one line on stderr says so.
func TestEngineNamedAsARuntime(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Name: "docker"})
	seedNode(c.stub)
	engine := filepath.Join(filepath.Dir(stubcri.SocketPath(t)), "docker.sock")
	answersAsEngine(t, engine)
	c.shim = func(context.Context, client.Engine, shim.Options) (client.Shim, error) {
		return servedElsewhere(c.stub.Endpoint), nil
	}
	r := c.run("-r", "unix://"+engine, "images", "-q")
	if want := "crishim: unix://" + engine + " is a Docker engine: taken as -r docker://" + engine + "\n"; r.code != 0 || r.err != want {
		t.Errorf("got %d, stderr %q, want %q", r.code, r.err, want)
	}
}

// servedElsewhere is a shim behind the endpoint of another server.
type servedElsewhere string

func (s servedElsewhere) Endpoint() string { return string(s) }
func (servedElsewhere) Close() error       { return nil }
