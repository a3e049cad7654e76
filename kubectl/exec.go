package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/stdinmux"
)

// session is what the streams of a command line in a pod are connected to.
type session struct {
	in       io.Reader // nil: empty
	out, err io.Writer
	terminal *os.File // nil: none
	forward  bool     // pass on the signals of this process
}

const (
	signalTimeout = 10 * time.Second // how long a command line may take to end after a signal
	openTimeout   = 30 * time.Second // how long a kubelet may take to begin a session
)

// exec runs a command line in a pod and returns its exit status.
func (p *pods) exec(outer context.Context, pod *corev1.Pod, args []string, s session) (int, error) {
	var refusal error // of a WebSocket; SPDY, which is next, does not have what the server says
	executor, err := p.executor(pod, args, s.terminal != nil, &refusal)
	if err != nil {
		return 0, err
	}
	if err := outer.Err(); err != nil {
		return 0, err
	}
	ctx, giveUp := context.WithCancelCause(context.WithoutCancel(outer))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer giveUp(nil)
	watching.Go(func() { p.watchPod(ctx, pod, s.forward, giveUp) })

	var opened atomic.Bool
	unanswered := time.AfterFunc(openTimeout, func() { giveUp(fmt.Errorf("its kubelet has not begun a session within %s", openTimeout)) })
	defer unanswered.Stop()
	begin := sync.OnceFunc(func() {
		opened.Store(true)
		unanswered.Stop()
	})
	// A signal ends the command line there, not the connection to it, where that can be told of signals.
	stop := context.AfterFunc(outer, func() {
		if !s.forward || s.terminal != nil || !opened.Load() || errors.Is(outer.Err(), context.DeadlineExceeded) {
			giveUp(context.Cause(outer))
		}
	})
	defer stop()

	// The library may still write when an exec has been given up.
	out, errs := &closableWriter{to: s.out}, &closableWriter{to: s.err}
	defer out.close()
	defer errs.close()
	o := remotecommand.StreamOptions{Stdout: out, Stderr: errs}
	if s.terminal != nil {
		t := openTerminal(s.terminal)
		defer t.restore()
		o.Stderr, o.Tty, o.TerminalSizeQueue = nil, true, t
		o.Stdin = &firstRead{s.terminal, func() {
			begin()
			if err := t.raw(); err != nil {
				giveUp(err)
			}
		}}
	} else {
		stream, pipe := io.Pipe()
		defer pipe.Close()
		o.Stdin = &firstRead{stream, begin}
		stdin := stdinmux.NewWriter(pipe)
		if s.in != nil {
			go func() { // may be in a read that does not end
				if _, err := io.Copy(stdin, s.in); err == nil {
					stdin.Close() //nolint:errcheck // then the session has ended
				}
			}()
		}
		if s.forward {
			watching.Go(func() { forwardSignals(ctx, stdin, giveUp) })
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- executor.StreamWithContext(ctx, o) }()
	select {
	case err = <-ended:
	case <-ctx.Done(): // client-go waits for the answer to a WebSocket's handshake without end
		return 0, context.Cause(ctx)
	}
	var exit utilexec.CodeExitError
	switch {
	case err == nil && refusal == nil:
		return 0, nil
	case err == nil: // over SPDY a connection that is cut is a success, too
		return 0, p.lostError(ctx, pod, nil, nil)
	case errors.As(err, &exit):
		return exit.Code, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	return 0, p.lostError(ctx, pod, err, refusal)
}

// executor runs a command line over a WebSocket, and over SPDY where the server, or a proxy, has none.
func (p *pods) executor(pod *corev1.Pod, args []string, tty bool, refusal *error) (remotecommand.Executor, error) {
	command := []string{kube.ClusterProgram}
	if !tty {
		command = append(command, kube.StdinMuxWord)
	}
	url := p.cluster.api.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: kube.ClusterContainer, Command: append(command, args...), Stdin: true, Stdout: true, Stderr: !tty, TTY: tty,
	}, scheme.ParameterCodec).URL()
	spdy, err := remotecommand.NewSPDYExecutor(p.cluster.config, "POST", url)
	if err != nil {
		return nil, err
	}
	webSocket, err := remotecommand.NewWebSocketExecutor(p.cluster.config, "GET", url.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(webSocket, spdy, func(err error) bool {
		*refusal = err
		var upgrade *httpstream.UpgradeFailureError
		if errors.As(err, &upgrade) {
			*refusal = upgrade.Cause
		}
		return upgrade != nil || httpstream.IsHTTPSProxyError(err)
	})
}

// firstRead calls begin at the first read: client-go reads standard input once the session is there.
type firstRead struct {
	from  io.Reader
	begin func()
}

func (r *firstRead) Read(p []byte) (int, error) {
	r.begin()
	return r.from.Read(p)
}

// forwardSignals sends signals to a command line, which is given up when it does not end within signalTimeout.
func forwardSignals(ctx context.Context, to *stdinmux.Writer, giveUp context.CancelCauseFunc) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	var late <-chan time.Time
	for {
		select {
		case s := <-signals:
			if late == nil {
				late = time.After(signalTimeout)
			}
			if number, ok := s.(syscall.Signal); ok {
				go func() { // nothing reads it before the session has begun
					if err := to.Signal(number); err != nil {
						giveUp(err)
					}
				}()
			}
		case <-late:
			giveUp(fmt.Errorf("the command has not ended %s after a signal", signalTimeout))
		case <-ctx.Done():
			return
		}
	}
}

// watchPod ends an exec whose pod is removed or has ended: what was in flight on a node that is gone may never be
// answered. For a command line without a deadline it watches the node, too.
func (p *pods) watchPod(ctx context.Context, pod *corev1.Pod, long bool, giveUp context.CancelCauseFunc) {
	const often = 10 * time.Second
	ticks := make(<-chan time.Time)
	if long {
		ticker := time.NewTicker(often)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		seen, changed, _ := p.look(pod.Name)
		if seen != nil && seen.UID == pod.UID {
			if why := over(seen); why != "" {
				giveUp(fmt.Errorf("its pod has ended: %s", why))
			}
		}
		select {
		case <-changed:
		case <-ticks:
			if node, err := p.cluster.api.Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{}); err == nil {
				if err := gone(node); err != nil {
					giveUp(err)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// lostError explains why an exec broke off by the state of the pod and its node. err may be nil, and is returned
// where nothing is wrong with these; refusal is why there is no WebSocket.
func (p *pods) lostError(ctx context.Context, pod *corev1.Pod, err, refusal error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	if node, nodeErr := p.cluster.api.Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{}); nodeErr == nil && gone(node) != nil {
		return gone(node)
	}
	now, podErr := p.cluster.api.Pods(p.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(podErr):
		return errors.New("its pod is gone")
	case podErr == nil && over(now) != "":
		return fmt.Errorf("its pod has ended: %s", over(now))
	case err == nil:
		return nil
	case apierrors.IsForbidden(refusal):
		return requestError(refusal, "create", "pods/exec in namespace "+p.namespace)
	}
	return fmt.Errorf("the session broke off: %w", err)
}

// terminal is the user's. It is in raw mode once a session has begun: until then Ctrl-C interrupts.
type terminal struct {
	fd      uintptr
	changes chan os.Signal // of its size
	done    chan struct{}

	mu     sync.Mutex  // guards what follows
	state  *term.State // to restore; nil: none
	closed bool
}

func openTerminal(file *os.File) *terminal {
	t := &terminal{fd: file.Fd(), changes: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(t.changes, syscall.SIGWINCH)
	t.changes <- syscall.SIGWINCH // for the first size
	return t
}

func (t *terminal) raw() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.state != nil {
		return nil
	}
	if t.state, err = term.SetRawTerminal(t.fd); err != nil {
		return fmt.Errorf("set terminal to raw mode: %w", err)
	}
	return nil
}

func (t *terminal) restore() {
	signal.Stop(t.changes)
	close(t.done)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.state != nil {
		term.RestoreTerminal(t.fd, t.state) //nolint:errcheck // a terminal that is gone needs nothing
	}
}

// Next implements remotecommand.TerminalSizeQueue.
func (t *terminal) Next() *remotecommand.TerminalSize {
	for {
		select {
		case <-t.done:
			return nil
		case <-t.changes:
			if size, err := term.GetWinsize(t.fd); err == nil && size.Width > 0 && size.Height > 0 {
				return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
			}
		}
	}
}

// closableWriter passes on what is written until it is closed.
type closableWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *closableWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.to == nil {
		return 0, io.ErrClosedPipe
	}
	return w.to.Write(b)
}

func (w *closableWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = nil
}
