package cli

import (
	"bytes"
	"testing"

	"github.com/crishim/crishim/client"
)

// A runtime of higher precedence that is there and does not answer is never passed over silently.
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
		env := (&Env{Err: &errs}).Fresh(false)
		env.Compat = compat
		env.noteChoice(conn)
		if got := errs.String(); got != want {
			t.Errorf("compat %t: got %q, want %q", compat, got, want)
		}
	}
}
