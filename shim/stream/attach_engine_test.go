package stream

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/state"
)

func (r *rig) attachURL(t *testing.T, id string, o remotecommand.StreamOptions) string {
	t.Helper()
	answer, err := r.Attach(t.Context(), &runtimeapi.AttachRequest{
		ContainerId: id, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetUrl()
}

func TestAttachCarriesInputUntilTheContainerEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	eachTransport(t, func(t *testing.T, over transport) {
		id := r.container(t, state.TypeContainer, func(c *container.Config, _ *container.HostConfig) {
			c.OpenStdin, c.StdinOnce = true, true
			c.Cmd = []string{"sh", "-c", "echo before; read x; echo got $x; echo problem >&2; cat; exit 3"}
		})
		in, typed := io.Pipe()
		var out, errOut lockedBuffer
		o := remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errOut}
		session := over(t, r.attachURL(t, id, o))
		done := make(chan error, 1)
		go func() { done <- session.StreamWithContext(t.Context(), o) }()
		fmt.Fprintln(typed, "hello")
		test.Until(t, "the answer", func() bool { return strings.Contains(out.String(), "got hello\n") })
		fmt.Fprintln(typed, "rest")
		typed.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := strings.TrimPrefix(out.String(), "before\n"); got != "got hello\nrest\n" || errOut.String() != "problem\n" {
			t.Errorf("got %q and %q", got, errOut.String())
		}
	})
}

func TestAttachTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.container(t, state.TypeContainer, func(c *container.Config, _ *container.HostConfig) {
		c.OpenStdin, c.Tty = true, true
		c.Cmd = []string{"sh"}
	})
	in, typed := io.Pipe()
	defer typed.Close()
	var out lockedBuffer
	sizes := make(chan *remotecommand.TerminalSize, 1)
	defer close(sizes)
	sizes <- &remotecommand.TerminalSize{Width: 93, Height: 19}
	o := remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: sizeQueue(sizes)}
	session := overSPDY(t, r.attachURL(t, id, o))
	done := make(chan error, 1)
	go func() { done <- session.StreamWithContext(t.Context(), o) }()
	test.Until(t, "the size", func() bool {
		fmt.Fprintln(typed, "stty size")
		return strings.Contains(out.String(), "19 93\r\n")
	})
	fmt.Fprintln(typed, "exit")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAttachLeavesTheContainerAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.container(t, state.TypeContainer, func(c *container.Config, _ *container.HostConfig) {
		c.Cmd = []string{"sh", "-c", "while :; do echo tick; sleep 0.1; done"}
	})
	for range 2 {
		var out lockedBuffer
		o := remotecommand.StreamOptions{Stdout: &out}
		ctx, cancel := context.WithCancel(t.Context())
		session := overSPDY(t, r.attachURL(t, id, o))
		done := make(chan error, 1)
		go func() { done <- session.StreamWithContext(ctx, o) }()
		test.Until(t, "output", func() bool { return strings.Contains(out.String(), "tick\n") })
		cancel()
		<-done
	}
	c, err := r.engine.ContainerInspect(t.Context(), id)
	if err != nil || !c.State.Running {
		t.Errorf("the container ended with its client: %v", err)
	}
}

// typedAtOnce types ctrl-p, then ctrl-q after the first has arrived, and expects only these two in the output. The
// engine must not treat them as detach keys.
func typedAtOnce(t *testing.T, session remotecommand.Executor, first string) {
	t.Helper()
	in, typed := io.Pipe()
	defer typed.Close()
	var out lockedBuffer
	done := make(chan error, 1)
	go func() {
		done <- session.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true})
	}()
	for _, key := range []struct{ typed, comes string }{{first, "ready"}, {"\x10", " 10"}, {"\x11", " 11"}} {
		_, _ = io.WriteString(typed, key.typed)
		test.Until(t, fmt.Sprintf("%q after %q was typed", key.comes, key.typed), func() bool {
			return strings.Contains(out.String(), key.comes)
		})
	}
	_, _ = io.WriteString(typed, "q")
	if err := <-done; err != nil {
		t.Errorf("the session ended with %v", err)
	}
}

// typing prints each byte as it arrives and ends after three.
const typing = "stty raw -echo; echo ready; for i in 1 2 3; do head -c 1 | od -An -tx1; done; stty sane"

func TestTheEnginesDetachKeysAreOffOnEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	o := remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard, Tty: true}
	t.Run("exec", func(t *testing.T) {
		typedAtOnce(t, overSPDY(t, r.execURL(t, r.app(t), o, "sh", "-c", typing)), "")
	})
	t.Run("attach", func(t *testing.T) {
		id := r.container(t, state.TypeContainer, func(c *container.Config, _ *container.HostConfig) {
			c.OpenStdin, c.Tty = true, true
			c.Cmd = []string{"sh", "-c", "read x; " + typing}
		})
		typedAtOnce(t, overSPDY(t, r.attachURL(t, id, o)), "\n")
	})
}
