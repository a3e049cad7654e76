package cli

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

// TestRunLineOnANodeKeepsTheEndpoint: a key of top acts on the runtime that -r names on the node.
func TestRunLineOnANodeKeepsTheEndpoint(t *testing.T) {
	t.Parallel()
	var got []string
	p := &Process{Out: io.Discard, Err: t.Output(), LookupEnv: func(string) (string, bool) { return "", false }}
	p.Cluster = &Cluster{
		One:   true,
		Nodes: func(context.Context) ([]string, error) { return []string{"node-01"}, nil },
		There: func(_ context.Context, _ stream.Streams, _ string, line NodeLine) error {
			got = append(line.Args, line.Socket)
			return nil
		},
	}
	in := NewInvocation(p, false)
	in.run = func(ctx context.Context, p *Process, args []string) int {
		return Run(ctx, args, p, []Group{{Verbs: []Entry{{Names: []string{"why"}, Build: func(*Invocation) *Verb { return &Verb{} }}}}})
	}
	in.line.Args = []string{"crishim", "--runtime-endpoint=unix:///run/other.sock", "--color=always", "--debug", "top"}
	status := in.RunLine(t.Context(), *p, nil, "why", "web")
	want := []string{"--color=never", "--runtime-endpoint=unix:///run/other.sock", "--debug", "why", "web", "unix:///run/other.sock"}
	if status != 0 || !slices.Equal(got, want) {
		t.Errorf("exit %d, got %q, want %q", status, got, want)
	}
}

// TestARuntimeThatHangsIsNamed: a runtime of higher precedence that does not answer is never skipped silently.
func TestARuntimeThatHangsIsNamed(t *testing.T) {
	t.Parallel()
	conn := &client.Conn{
		RuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		Candidates: []client.Candidate{
			{Endpoint: "unix:///run/crishim/crishim.sock", State: client.StateHangs},
			{Endpoint: "unix:///run/containerd/containerd.sock", State: client.StateReady, Chosen: true},
			{Endpoint: "unix:///run/crio/crio.sock", State: client.StateHangs},
		},
	}
	for compat, want := range map[bool]string{
		false: "crishim: warning: unix:///run/crishim/crishim.sock accepts connections but does not answer, so unix:///run/containerd/containerd.sock is used; -r chooses\n",
		true:  "",
	} {
		var errs bytes.Buffer
		NewConnector(NewInvocation(&Process{Err: &errs}, compat)).noteChoice(conn)
		if got := errs.String(); got != want {
			t.Errorf("compat %t: got %q, want %q", compat, got, want)
		}
	}
}
