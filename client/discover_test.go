package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
)

type node struct {
	t    *testing.T
	dir  string
	shim *fakeShim
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: filepath.Dir(stubcri.SocketPath(t)), shim: &fakeShim{}}
	n.shim.endpoint = stubcri.Start(t, stubcri.Options{Name: "docker"}).Endpoint
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) runtime(name string, o stubcri.Options) *stubcri.Server {
	n.t.Helper()
	o.Socket, o.Name = n.path(name), name
	return stubcri.Start(n.t, o)
}

// options has three known sockets, containerd's first, and one engine socket.
func (n *node) options() client.Options {
	return client.Options{
		Known: []client.Known{
			{Name: "containerd", Path: n.path("containerd"), Containerd: true},
			{Name: "CRI-O", Path: n.path("crio")},
			{Name: "cri-dockerd", Path: n.path("crid")},
		},
		Engines:      engines(n.path("docker")),
		ProbeTimeout: longTimeout,
		StartShim:    n.shim.start,
	}
}

func states(attempts []client.Candidate) map[string]string {
	out := map[string]string{}
	for _, a := range attempts {
		name := filepath.Base(a.Endpoint)
		out[name] = a.State
		if a.Chosen {
			out[name] += ", chosen"
		}
	}
	return out
}

func TestAutomaticTakesByPrecedence(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	slow, quick := n.runtime("containerd", stubcri.Options{}), n.runtime("crio", stubcri.Options{})
	// The first runtime answers only after the second.
	slow.Before("Version", func(ctx context.Context) {
		for ctx.Err() == nil && len(quick.Methods()) == 0 {
			time.Sleep(time.Millisecond)
		}
	})
	silent(t, n.path("crid"))
	fakeEngine(t, n.path("docker"))
	c := connect(t, n.options())
	if c.RuntimeEndpoint != "unix://"+n.path("containerd") || c.Embedded || n.shim.started > 0 {
		t.Errorf("got %s, embedded %t", c.RuntimeEndpoint, c.Embedded)
	}
	if got := states(c.Candidates); got["containerd"] != "ready, chosen" || got["crid"] != client.StateNotTried {
		t.Errorf("got %v", c.Candidates)
	}
}

func TestAutomaticPassesOverWhatDoesNotWork(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runtime("containerd", stubcri.Options{Unimplemented: []string{"Version"}}) // the CRI plugin is disabled
	silent(t, n.path("crio"))
	n.runtime("crid", stubcri.Options{APIs: []string{"v1alpha2"}})
	o := n.options()
	o.ProbeTimeout = 3 * time.Second // the silent socket uses all of it
	c := connect(t, o)
	want := map[string]string{"containerd": "no CRI", "crio": "hangs", "crid": "ready, chosen", "docker": "absent"}
	if diff := cmp.Diff(want, states(c.Candidates)); diff != "" {
		t.Error(diff)
	}
}

func TestAutomaticStartsTheShimWhereThereIsOnlyDocker(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	fakeEngine(t, n.path("docker"))
	c := connect(t, n.options())
	if !c.Embedded || c.RuntimeEndpoint != "docker://"+n.path("docker") || c.Engine.Host != "unix://"+n.path("docker") {
		t.Errorf("got %s on %s, embedded %t", c.RuntimeEndpoint, c.Engine.Host, c.Embedded)
	}
}

func TestDockersOwnContainerd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name              string
		pods, net, engine bool
		embedded          bool
	}{
		{"without network and pods, beside an engine", false, false, true, true},
		{"with a pod", true, false, true, false},
		{"with a network", false, true, true, false},
		{"without an engine", false, false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			s := n.runtime("containerd", stubcri.Options{NoNetwork: !tt.net})
			if tt.pods {
				s.AddPod("default", "web")
			}
			if tt.engine {
				fakeEngine(t, n.path("docker"))
			}
			c := connect(t, n.options())
			if c.Embedded != tt.embedded {
				t.Fatalf("embedded: got %t, want %t; %v", c.Embedded, tt.embedded, c.Candidates)
			}
			if !tt.embedded {
				return
			}
			if got := states(c.Candidates)["containerd"]; got != client.StateDockersOwn {
				t.Errorf("got %s", got)
			}
			// The hint of a later error also names the skipped runtime.
			_, err := c.Pod(t.Context(), "nosuch", client.NewestAttempt)
			if h := hintOf(err); !strings.Contains(h, "-r unix://"+n.path("containerd")) {
				t.Errorf("hint of a later error: got %q", h)
			}
			// A named endpoint is used in any case.
			o := n.options()
			o.RuntimeEndpoint = n.path("containerd")
			if c := connect(t, o); c.Embedded {
				t.Error("-r did not override")
			}
		})
	}
}

func TestNothingFound(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.options()
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if filepath.Base(address) == "crio" {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.EACCES)}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	n.runtime("containerd", stubcri.Options{Unimplemented: []string{"Version"}})
	serveHTTP(t, n.path("crid"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	hint, err := refusal(t, o)
	want := "no container runtime found:" +
		"\n  unix://" + n.path("containerd") + " (containerd): it serves no CRI (the CRI plugin is off)" +
		"\n  unix://" + n.path("crio") + " (CRI-O): permission denied" +
		"\n  unix://" + n.path("crid") + " (cri-dockerd): it speaks HTTP, not gRPC" +
		"\n  unix://" + n.path("docker") + " (Docker): there is no such socket"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(hint, "sudo") || status.Code(err) != codes.Unavailable {
		t.Errorf("got hint %q, code %s", hint, status.Code(err))
	}
}

func TestShimThatFailsNamesTheOtherRuntime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runtime("containerd", stubcri.Options{NoNetwork: true})
	fakeEngine(t, n.path("docker"))
	o := n.options()
	o.StartShim = func(context.Context, client.Engine) (client.Shim, error) {
		return nil, status.Error(codes.Unavailable, "the engine went away")
	}
	hint, err := refusal(t, o)
	if !strings.HasSuffix(err.Error(), ": the engine went away") || !strings.Contains(hint, n.path("containerd")) {
		t.Errorf("got %q, hint %q", err, hint)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runtime("containerd", stubcri.Options{NoNetwork: true})
	fakeEngine(t, n.path("docker"))
	got, err := client.Discover(t.Context(), n.options())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"containerd": client.StateDockersOwn, "crio": "absent", "crid": "absent", "docker": "ready, chosen"}
	if diff := cmp.Diff(want, states(got)); diff != "" {
		t.Error(diff)
	}
	if n.shim.started > 0 {
		t.Error("the shim was started")
	}

	o := n.options()
	o.RuntimeEndpoint, o.ConnectTimeout = n.path("containerd"), longTimeout
	got, err = client.Discover(t.Context(), o)
	if err != nil || len(got) != 4 {
		t.Fatalf("got %v, %v", got, err)
	}
	if got[0].Name != "containerd" || states(got)["containerd"] != "ready, chosen" || states(got)["docker"] != "ready" {
		t.Errorf("got %v", got)
	}

	o.RuntimeEndpoint = n.path("nothing")
	got, err = client.Discover(t.Context(), o)
	if err == nil || len(got) != 5 || got[0].State != client.StateAbsent {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestProbeNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	got, err := client.Discover(t.Context(), n.options())
	if err == nil || len(got) != 4 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestEngineThatTheUserNamed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	fakeEngine(t, n.path("docker"))
	named := client.Engine{Host: "unix://" + n.path("docker"), From: "DOCKER_HOST"}
	gone, broken := named, named
	gone.Host, broken.Err = "unix://"+n.path("none"), errors.New("no certificate")
	for want, engine := range map[string]client.Engine{"": named, "there is no such socket": gone, "no certificate": broken} {
		o := n.options()
		o.Engines = func(string) []client.Engine { return []client.Engine{engine} }
		for _, endpoint := range []string{"", "docker://"} {
			o.RuntimeEndpoint = endpoint
			if want == "" {
				if c := connect(t, o); c.Engine.Host != named.Host {
					t.Errorf("-r %q: got %s", endpoint, c.Engine.Host)
				}
				continue
			}
			hint, err := refusal(t, o)
			if !strings.Contains(err.Error(), "(Docker, from DOCKER_HOST): "+want) || hint == "" {
				t.Errorf("-r %q: got %q, hint %q, want %s", endpoint, err, hint, want)
			}
		}
	}
}
