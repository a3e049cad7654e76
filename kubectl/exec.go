package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
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

// signalTimeout is how long a command line may take to end after a signal.
const signalTimeout = 10 * time.Second

// exec runs a command line in a pod and returns its exit status.
func (p *pods) exec(ctx context.Context, pod *corev1.Pod, args []string, s session) (int, error) {
	var refusal error // of a WebSocket; SPDY, which is next, does not have what the server says
	executor, err := p.executor(pod, args, s.terminal != nil, &refusal)
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 4)
	if s.forward { // signals end the command line there, not the connection to it
		deadline, limited := ctx.Deadline()
		if ctx = context.WithoutCancel(ctx); limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, deadline, fmt.Errorf("node %s: no answer within %s", pod.Spec.NodeName, p.options.nodeTimeout))
			defer cancel()
		}
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer signal.Stop(signals)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { p.watchPod(ctx, pod, s.forward, cancel) })

	// The library may still write when an exec has been given up.
	out, errs := &closableWriter{to: s.out}, &closableWriter{to: s.err}
	defer out.close()
	defer errs.close()
	o := remotecommand.StreamOptions{Stdout: out, Stderr: errs}
	if s.terminal != nil {
		restore, err := openTerminal(&o, s.terminal)
		if err != nil {
			return 0, err
		}
		defer restore()
	} else {
		stream, pipe := io.Pipe()
		defer pipe.Close()
		o.Stdin = stream
		stdin := stdinmux.NewWriter(pipe)
		if s.in != nil {
			go func() { // may be in a read that does not end
				if _, err := io.Copy(stdin, s.in); err == nil {
					stdin.Close() //nolint:errcheck // then the session has ended
				}
			}()
		}
		if s.forward {
			watching.Go(func() { forwardSignals(ctx, signals, stdin, cancel) })
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- executor.StreamWithContext(ctx, o) }()
	select {
	case err = <-ended:
		if deadline, limited := ctx.Deadline(); limited && !time.Now().Before(deadline) {
			<-ctx.Done() // the connection has the same deadline
		}
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

// forwardSignals sends signals to a command line, which is given up when it does not end within signalTimeout.
func forwardSignals(ctx context.Context, signals <-chan os.Signal, to *stdinmux.Writer, giveUp context.CancelCauseFunc) {
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
				giveUp(fmt.Errorf("the pod on node %s has ended: %s", pod.Spec.NodeName, why))
			}
		}
		select {
		case <-changed:
		case <-ticks:
			if node, err := p.cluster.api.Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{}); err == nil && goneReason(node) != "" {
				giveUp(fmt.Errorf("node %s is gone: %s", node.Name, goneReason(node)))
			}
		case <-ctx.Done():
			return
		}
	}
}

// lostError explains why an exec broke off by the state of the pod and its node. err may be nil, and is returned
// where nothing is wrong with these; refusal is why there is no WebSocket.
func (p *pods) lostError(ctx context.Context, pod *corev1.Pod, err, refusal error) error {
	name := pod.Spec.NodeName
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	if node, nodeErr := p.cluster.api.Nodes().Get(ctx, name, metav1.GetOptions{}); nodeErr == nil && goneReason(node) != "" {
		return fmt.Errorf("node %s is gone: %s", name, goneReason(node))
	}
	now, podErr := p.cluster.api.Pods(p.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(podErr):
		return fmt.Errorf("the pod on node %s is gone", name)
	case podErr == nil && over(now) != "":
		return fmt.Errorf("the pod on node %s has ended: %s", name, over(now))
	case err == nil:
		return nil
	case apierrors.IsForbidden(refusal):
		return requestError(refusal, "create", "pods/exec in namespace "+p.namespace)
	}
	return fmt.Errorf("the connection to node %s broke: %w", name, err)
}

// openTerminal connects the session with the user's terminal in raw mode; restore restores its mode.
func openTerminal(o *remotecommand.StreamOptions, terminal *os.File) (restore func(), err error) {
	state, err := term.SetRawTerminal(terminal.Fd())
	if err != nil {
		return nil, fmt.Errorf("set terminal to raw mode: %w", err)
	}
	sizes := &sizeQueue{fd: terminal.Fd(), changes: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(sizes.changes, syscall.SIGWINCH)
	sizes.changes <- syscall.SIGWINCH // for the first size
	o.Stdin, o.Stderr, o.Tty, o.TerminalSizeQueue = terminal, nil, true, sizes
	return func() {
		signal.Stop(sizes.changes)
		close(sizes.done)
		term.RestoreTerminal(terminal.Fd(), state) //nolint:errcheck // a terminal that is gone needs nothing
	}, nil
}

// sizeQueue returns the sizes of a terminal as they change.
type sizeQueue struct {
	fd      uintptr
	changes chan os.Signal
	done    chan struct{}
}

// Next implements remotecommand.TerminalSizeQueue.
func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	for {
		select {
		case <-q.done:
			return nil
		case <-q.changes:
			if size, err := term.GetWinsize(q.fd); err == nil && size.Width > 0 && size.Height > 0 {
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
