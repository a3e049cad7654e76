package cli

import (
	"bytes"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// Which of several runtimes is used is said once, to people only.
func TestChoiceAmongRuntimesIsSaidOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn := &client.Conn{
		RuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		Version:         &runtimeapi.VersionResponse{RuntimeName: "containerd"},
		Candidates: []client.Candidate{
			{Endpoint: "unix:///run/containerd/containerd.sock", Kind: client.KindCRI, State: client.StateReady, Chosen: true},
			{Endpoint: "unix:///run/crio/crio.sock", Kind: client.KindCRI, State: client.StateAbsent},
			{Endpoint: "unix:///var/run/docker.sock", Kind: client.KindEngine, State: client.StateReady},
		},
	}
	said := func(change func(*Env, *client.Options)) string {
		var errs bytes.Buffer
		env := (&Env{Err: &errs, OutTerminal: true, ErrTerminal: true, RunDir: func() (string, error) { return dir, nil }}).Fresh(false)
		var o client.Options
		change(env, &o)
		if env.namesOthers(o) {
			o.Others = othersTime
		}
		env.noteChoice(conn, o)
		return errs.String()
	}
	for name, change := range map[string]func(*Env, *client.Options){
		"a pipe":      func(env *Env, _ *client.Options) { env.OutTerminal = false },
		"crictl":      func(env *Env, _ *client.Options) { env.Compat = true },
		"an endpoint": func(_ *Env, o *client.Options) { o.RuntimeEndpoint = conn.RuntimeEndpoint },
	} {
		if got := said(change); got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
	nothing := func(*Env, *client.Options) {}
	want := "crishim: several runtimes answer; containerd (unix:///run/containerd/containerd.sock) is used, -r takes another: docker:///var/run/docker.sock\n"
	if got := said(nothing); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := said(nothing); got != "" {
		t.Errorf("the second time got %q", got)
	}
}

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
		env.noteChoice(conn, client.Options{})
		if got := errs.String(); got != want {
			t.Errorf("compat %t: got %q, want %q", compat, got, want)
		}
	}
}
