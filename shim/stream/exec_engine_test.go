package stream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/state"
)

func eachTransport(t *testing.T, test func(t *testing.T, over transport)) {
	for name, over := range map[string]transport{"spdy": overSPDY, "websocket": overWebSocket} {
		t.Run(name, func(t *testing.T) { test(t, over) })
	}
}

// exitCode returns the exit code in a client's error, or -1 for any other error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return -1
}

func TestExecStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	eachTransport(t, func(t *testing.T, over transport) {
		for _, test := range []struct {
			name, script, stdin, stdout, stderr string
			code                                int
		}{
			{name: "streams apart", script: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
			{name: "exit status", script: "exit 3", code: 3},
			{name: "killed by a signal", script: "kill -TERM $$", code: 143},
			{name: "end of input reaches the process", script: "cat", stdin: "some input", stdout: "some input"},
			{name: "input that nobody reads", script: "echo done", stdin: strings.Repeat("x", 1<<20), stdout: "done\n"},
			{name: "output closed before the end", script: "exec >&- 2>&-; sleep 1; exit 4", code: 4},
			{name: "nothing", script: ":"},
		} {
			t.Run(test.name, func(t *testing.T) {
				stdout, stderr, err := r.sh(t, over, id, test.script, test.stdin)
				if code := exitCode(err); code != test.code || stdout != test.stdout || stderr != test.stderr {
					t.Errorf("got status %d (%v), stdout %q, stderr %q", code, err, stdout, stderr)
				}
			})
		}
	})
}

func TestExecThatCannotStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	eachTransport(t, func(t *testing.T, over transport) {
		for _, test := range []struct {
			cmd  string
			code int
		}{{"no-such-command", 127}, {"/no/such/file", 127}, {"/etc/passwd", 126}, {"/tmp", 126}} {
			t.Run(test.cmd, func(t *testing.T) {
				var stdout, stderr bytes.Buffer
				o := remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}
				err := over(t, r.execURL(t, id, o, test.cmd)).StreamWithContext(t.Context(), o)
				if exitCode(err) != test.code {
					t.Errorf("got %v, want status %d", err, test.code)
				}
				if stdout.Len() > 0 || !strings.Contains(stderr.String(), "exec") {
					t.Errorf("got stdout %q and stderr %q, want the reason on stderr only", &stdout, &stderr)
				}
			})
		}
	})
}

// A terminal may be resized before the engine reports a failed start. Nothing reads the size then.
func TestExecThatCannotStartInATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	eachTransport(t, func(t *testing.T, over transport) {
		sizes := make(chan *remotecommand.TerminalSize, 4)
		for width := range cap(sizes) {
			sizes <- &remotecommand.TerminalSize{Width: uint16(80 + width), Height: 24}
		}
		close(sizes)
		var out bytes.Buffer
		o := remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: sizeQueue(sizes)}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := over(t, r.execURL(t, id, o, "no-such-command")).StreamWithContext(ctx, o)
		if exitCode(err) != 127 || !strings.Contains(out.String(), "not found") {
			t.Errorf("got %v, %q", err, &out)
		}
	})
}

func TestExecTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	eachTransport(t, func(t *testing.T, over transport) {
		in, typed := io.Pipe()
		var out lockedBuffer
		sizes := make(chan *remotecommand.TerminalSize, 1)
		sizes <- &remotecommand.TerminalSize{Width: 91, Height: 17}
		o := remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: sizeQueue(sizes)}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		done := make(chan error, 1)
		session := over(t, r.execURL(t, id, o, "sh"))
		go func() { done <- session.StreamWithContext(ctx, o) }()

		ask := func(want string) {
			test.Until(t, want, func() bool {
				fmt.Fprintf(typed, "stty size\n")
				return strings.Contains(out.String(), want+"\r\n")
			})
		}
		ask("17 91")
		sizes <- &remotecommand.TerminalSize{Width: 100, Height: 40}
		ask("40 100")
		fmt.Fprintf(typed, "exit 9\n")
		if err := <-done; exitCode(err) != 9 {
			t.Errorf("got %v, want status 9", err)
		}
		close(sizes)
		typed.Close()
	})
}

type sizeQueue chan *remotecommand.TerminalSize

func (q sizeQueue) Next() *remotecommand.TerminalSize { return <-q }

// pattern returns pseudo-random bytes that are the same each time.
func pattern(size int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }

func TestExecCarriesBinaryBothWays(t *testing.T) {
	t.Parallel()
	size := int64(load(16<<20, 1<<30))
	r := newRig(t, Options{})
	id := r.app(t)
	eachTransport(t, func(t *testing.T, over transport) {
		sent, received := sha256.New(), sha256.New()
		o := remotecommand.StreamOptions{Stdin: io.TeeReader(pattern(size), sent), Stdout: received}
		ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
		defer cancel()
		if err := over(t, r.execURL(t, id, o, "cat")).StreamWithContext(ctx, o); err != nil {
			t.Fatal(err)
		}
		if want, got := hex.EncodeToString(sent.Sum(nil)), hex.EncodeToString(received.Sum(nil)); got != want {
			t.Errorf("got checksum %s, want %s", got, want)
		}
	})
}

func TestExecEndsWithItsClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	eachTransport(t, func(t *testing.T, over transport) {
		for name, script := range map[string]string{
			"idle":                     "sleep 4242 & (sleep 4242 &) ; echo ready; sleep 4242",
			"input that nobody reads":  "echo ready; sleep 4242",
			"output that nobody reads": "sleep 4242 & echo ready; cat /dev/zero",
			"a session of its own":     "setsid sleep 4242 & echo ready; wait",
			"and without a parent":     "(setsid sh -c 'sleep 4242 & sleep 4242 >/dev/null 2>&1 & wait' &); echo ready; sleep 4242",
		} {
			t.Run(name, func(t *testing.T) {
				var out lockedBuffer
				o := remotecommand.StreamOptions{Stdout: &out}
				if name == "input that nobody reads" {
					o.Stdin = neverEnding{}
				}
				session, cut := cuttable(t, over, r.execURL(t, id, o, "sh", "-c", script))
				done := make(chan error, 1)
				go func() { done <- session(o) }()
				test.Until(t, "the script to start", func() bool { return strings.HasPrefix(out.String(), "ready\n") })
				cut()
				<-done
				test.Until(t, "its processes to be gone", func() bool { return len(r.processes(t, id, "4242")) == 0 })
			})
		}
	})
}

// cuttable returns a session whose connections can be cut, as when the client is killed.
func cuttable(t *testing.T, over transport, streamingURL string) (session func(remotecommand.StreamOptions) error, cut func()) {
	t.Helper()
	proxy, u := test.ProxyURL(t, streamingURL)
	through := over(t, u)
	return func(o remotecommand.StreamOptions) error { return through.StreamWithContext(t.Context(), o) }, proxy.Cut
}

// On a terminal, orphans of an exec are identified by the terminal.
func TestExecEndsStraysOfATerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	var out lockedBuffer
	o := remotecommand.StreamOptions{Stdin: neverEnding{}, Stdout: &out, Tty: true}
	ctx, cancel := context.WithCancel(t.Context())
	session := overSPDY(t, r.execURL(t, id, o, "sh", "-c", "stty -echo; (setsid sleep 4243 &); echo ready; sleep 4243"))
	done := make(chan error, 1)
	go func() { done <- session.StreamWithContext(ctx, o) }()
	test.Until(t, "both processes", func() bool { return len(r.processes(t, id, "sleep 4243")) >= 2 })
	test.Until(t, "the script to start", func() bool { return strings.Contains(out.String(), "ready") })
	cancel()
	<-done
	test.Until(t, "its processes to be gone", func() bool { return len(r.processes(t, id, "4243")) == 0 })
}

// Processes that write to the container's own output share its pipe. They are not killed.
func TestExecEndsNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	innocent := func() {
		t.Helper()
		if _, _, err := r.sh(t, overSPDY, id, "setsid sleep 4244 </dev/null >/proc/1/fd/1 2>&1 &", ""); err != nil {
			t.Fatal(err)
		}
	}
	innocent()
	var out lockedBuffer
	o := remotecommand.StreamOptions{Stdout: &out}
	ctx, cancel := context.WithCancel(t.Context())
	session := overSPDY(t, r.execURL(t, id, o, "sh", "-c", "echo ready; exec >/proc/1/fd/1 2>&1; (setsid sleep 4245 &); sleep 4245"))
	done := make(chan error, 1)
	go func() { done <- session.StreamWithContext(ctx, o) }()
	test.Until(t, "both processes", func() bool { return out.String() == "ready\n" && len(r.processes(t, id, "sleep 4245")) >= 2 })
	innocent()
	cancel()
	<-done
	test.Until(t, "the command to be gone", func() bool { return len(r.processes(t, id, "exec >/proc/1/fd/1")) == 0 })
	if left := r.processes(t, id, "sleep 4244"); len(left) != 2 {
		t.Errorf("of two processes that had nothing to do with it these are left: %v", left)
	}
}

func TestExecDetached(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	eachTransport(t, func(t *testing.T, over transport) {
		id := r.app(t)
		var out lockedBuffer
		o := remotecommand.StreamOptions{Stdout: &out}
		u := r.execURL(t, id, o, "sh", "-c", "echo ready; sleep 4343")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		session := over(t, u)
		done := make(chan error, 1)
		go func() { done <- session.StreamWithContext(ctx, o) }()
		test.Until(t, "the script to start", func() bool { return out.String() == "ready\n" })
		if err := r.Detach(u); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
		test.Until(t, "the session to end", func() bool { return errdefs.IsNotFound(r.Detach(u)) })
		if len(r.processes(t, id, "4343")) == 0 {
			t.Error("the process ended with its client")
		}
	})
}

func TestExecBackgroundChildDoesNotHoldTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	eachTransport(t, func(t *testing.T, over transport) {
		id := r.app(t)
		stdout, _, err := r.sh(t, over, id, "sleep 4444 & echo started; exit 5", "")
		if exitCode(err) != 5 || stdout != "started\n" {
			t.Errorf("got %v and %q, want status 5 and the output", err, stdout)
		}
		if len(r.processes(t, id, "4444")) == 0 {
			t.Error("the child that was left in the background on purpose is gone")
		}
	})
}

func TestExecEndsWithItsContainer(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	eachTransport(t, func(t *testing.T, over transport) {
		for name, end := range map[string]func(id string) error{
			"stopped": func(id string) error {
				now := 0
				return r.engine.ContainerStop(t.Context(), id, container.StopOptions{Timeout: &now})
			},
			"removed": func(id string) error {
				return r.engine.ContainerRemove(t.Context(), id, container.RemoveOptions{Force: true})
			},
		} {
			t.Run(name, func(t *testing.T) {
				id := r.app(t)
				var out lockedBuffer
				o := remotecommand.StreamOptions{Stdin: neverEnding{}, Stdout: &out}
				session := over(t, r.execURL(t, id, o, "sh", "-c", "echo ready; sleep 4545"))
				done := make(chan error, 1)
				go func() { done <- session.StreamWithContext(t.Context(), o) }()
				test.Until(t, "the script to start", func() bool { return out.String() == "ready\n" })
				if err := end(id); err != nil {
					t.Fatal(err)
				}
				if err := <-done; exitCode(err) != 137 {
					t.Errorf("got %v, want status 137", err)
				}
			})
		}
	})
}

// TestSessionsEndWithAContainerThatSharesProcessIDs covers containers in a shared PID namespace, where the kernel does
// not kill the execs when the first process ends.
func TestSessionsEndWithAContainerThatSharesProcessIDs(t *testing.T) {
	r := newRig(t, Options{})
	for how, signal := range map[string]string{"ends": "TERM", "is killed": "KILL"} {
		t.Run(how, func(t *testing.T) {
			pod := r.container(t, state.TypeSandbox, nil)
			id := r.container(t, state.TypeContainer, func(config *container.Config, host *container.HostConfig) {
				host.PidMode = container.PidMode("container:" + pod)
				config.Cmd = []string{"sh", "-c", "trap 'echo last; exit 0' TERM; while :; do echo tick; sleep 0.2 & wait; done"}
			})
			execEnded, attachEnded := make(chan error, 1), make(chan error, 1)
			var out, attached lockedBuffer
			attach := remotecommand.StreamOptions{Stdout: &attached}
			attachSession := overSPDY(t, r.attachURL(t, id, attach))
			go func() { attachEnded <- attachSession.StreamWithContext(t.Context(), attach) }()
			test.Until(t, "the attach", func() bool { return attached.String() != "" })
			exec := remotecommand.StreamOptions{Stdin: neverEnding{}, Stdout: &out}
			execSession := overSPDY(t, r.execURL(t, id, exec, "sh", "-c", "setsid sleep 4547 & sleep 4547 & echo ready; sleep 4547"))
			go func() { execEnded <- execSession.StreamWithContext(t.Context(), exec) }()
			test.Until(t, "the script to start", func() bool { return out.String() == "ready\n" })
			began := time.Now()
			if err := r.engine.ContainerKill(t.Context(), id, signal); err != nil {
				t.Fatal(err)
			}
			for what, session := range map[string]struct {
				ended <-chan error
				code  int
			}{"exec": {execEnded, 137}, "attach": {attachEnded, 0}} {
				select {
				case err := <-session.ended:
					if exitCode(err) != session.code {
						t.Errorf("%s ended with %v, want status %d", what, err, session.code)
					}
				case <-time.After(4*time.Second - time.Since(began)): // 2 s plus a margin for busy machines
					t.Errorf("%s did not end with its container", what)
				}
			}
			if text := attached.String(); signal == "TERM" && !strings.HasSuffix(text, "last\n") {
				t.Errorf("attach carried %q, without the last line", text)
			}
			if left := r.processes(t, pod, "4547"); len(left) > 0 {
				t.Errorf("still there: %q", left)
			}
		})
	}
}

func TestCloseEndsSessions(t *testing.T) {
	eachTransport(t, func(t *testing.T, over transport) {
		r := newRig(t, Options{})
		id := r.app(t)
		var out lockedBuffer
		o := remotecommand.StreamOptions{Stdout: &out}
		session := over(t, r.execURL(t, id, o, "sh", "-c", "echo ready; sleep 4646"))
		done := make(chan error, 1)
		go func() { done <- session.StreamWithContext(t.Context(), o) }()
		test.Until(t, "the script to start", func() bool { return out.String() == "ready\n" })
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), errStopping.Error()) {
			t.Errorf("got %v for a command that was killed", err)
		}
		if left := r.processes(t, id, "4646"); len(left) > 0 {
			t.Errorf("left running: %v", left)
		}
		if _, err := r.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"true"}, Stdout: true}); !errdefs.IsUnavailable(err) {
			t.Errorf("exec after close: got %v, want Unavailable", err)
		}
	})
}

func TestExecEnvironment(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	got, err := r.RunSync(t.Context(), ExecRequest{
		ContainerID: id, Cmd: []string{"sh", "-c", "echo $COLOUR $(pwd) $(id -u)"},
		Env: []string{"COLOUR=blue"}, WorkingDir: "/etc", User: "1000",
	}, 0)
	if err != nil || string(got.GetStdout()) != "blue /etc 1000\n" {
		t.Errorf("got %v, %v", got, err)
	}
}
