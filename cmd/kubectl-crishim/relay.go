package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/output"
)

const (
	openTimeout  = 30 * time.Second // limit for a kubelet to start a session
	leaveTimeout = 2 * time.Second  // limit for a process to end after EOF on its stdin
)

// relayConn is a connection to a socket on a node through the standard streams of an exec.
type relayConn struct {
	net.Conn                         // local end of a pipe
	cut      context.CancelCauseFunc // cancels the exec
	ended    chan struct{}
	err      error // reason why the exec has ended
}

// dial connects to the runtime of a node, or to an address on its loopback.
func (p *pods) dial(ctx context.Context, pod *corev1.Pod, line cli.NodeLine, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	session, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &relayConn{Conn: near, cut: cut, ended: make(chan struct{})}
	args := []string{kube.RelayWord, line.Verb}
	if address != "" {
		args = append(args, address)
	}
	p.background.Go(func() {
		var said firstLine
		status, err := p.exec(session, pod, line, args, far, far, &said)
		switch {
		case err != nil:
			r.err = err
		case status != 0:
			r.err = errors.New(cmp.Or(said.text(), fmt.Sprintf("the relay in its pod has ended with status %d", status)))
		}
		close(r.ended)
		cut(nil)
		far.Close()
	})
	defer context.AfterFunc(ctx, func() { r.cut(context.Cause(ctx)) })()
	ready := make([]byte, len(kube.RelayReady))
	_, err := io.ReadFull(r, ready)
	if err == nil && string(ready) != kube.RelayReady {
		err = errors.New("its image has no crishim with a relay")
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Read reads data from the socket. If the exec has failed, it returns that error instead of EOF.
func (r *relayConn) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	return n, r.why(err)
}

func (r *relayConn) Write(b []byte) (int, error) {
	n, err := r.Conn.Write(b)
	return n, r.why(err)
}

func (r *relayConn) why(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	select {
	case <-r.ended:
		return cmp.Or(r.err, err)
	default:
		return err
	}
}

// Close ends the exec by EOF on its standard input.
func (r *relayConn) Close() error {
	time.AfterFunc(leaveTimeout, func() { r.cut(nil) })
	return r.Conn.Close()
}

type firstLine struct{ line strings.Builder }

func (f *firstLine) Write(p []byte) (int, error) {
	f.line.Write(p[:min(len(p), 4096-min(f.line.Len(), 4096))])
	return len(p), nil
}

// text returns the line without the prefix "crishim: ". The node is not trusted, so text sanitizes the line.
func (f *firstLine) text() string {
	line, _, _ := strings.Cut(f.line.String(), "\n")
	return output.Sanitize(strings.TrimPrefix(line, "crishim: "))
}

// exec runs crishim in a pod and returns its exit status. The connection is closed when ctx ends.
func (p *pods) exec(ctx context.Context, pod *corev1.Pod, line cli.NodeLine, args []string, in io.Reader, stdout, stderr io.Writer) (int, error) {
	var refusal error // error of the WebSocket; the SPDY fallback does not report the server's reason
	executor, err := p.executor(pod, args, &refusal)
	if err != nil {
		return 0, err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer giveUp(nil)
	watching.Go(func() { p.watchPod(ctx, pod, line.Deadline == 0, giveUp) })
	unanswered := time.AfterFunc(openTimeout, func() { giveUp(fmt.Errorf("its kubelet has not begun a session within %s", openTimeout)) })
	defer unanswered.Stop()

	// The library may still write after the exec was abandoned.
	out, errs := &closableWriter{to: stdout}, &closableWriter{to: stderr}
	defer out.close()
	defer errs.close()
	ended := make(chan error, 1)
	go func() {
		ended <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: &firstRead{in, func() { unanswered.Stop() }}, Stdout: out, Stderr: errs})
	}()
	select {
	case err = <-ended:
	case <-ctx.Done(): // client-go waits for a WebSocket handshake without limit
		return 0, context.Cause(ctx)
	}
	var exit utilexec.CodeExitError
	switch {
	case err == nil && refusal == nil:
		return 0, nil
	case err == nil: // over SPDY a lost connection is reported as success
		return 0, p.lostError(ctx, pod, nil, nil)
	case errors.As(err, &exit):
		return exit.Code, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	return 0, p.lostError(ctx, pod, err, refusal)
}

// executor uses WebSocket, or SPDY if the server or a proxy does not support WebSocket.
func (p *pods) executor(pod *corev1.Pod, args []string, refusal *error) (remotecommand.Executor, error) {
	url := p.cluster.api.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: kube.ClusterContainer, Command: append([]string{kube.ClusterProgram}, args...), Stdin: true, Stdout: true, Stderr: true,
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

// firstRead calls begin at each read. The first read shows that the session is established, because client-go reads stdin
// only after that.
type firstRead struct {
	from  io.Reader
	begin func()
}

func (r *firstRead) Read(p []byte) (int, error) {
	r.begin()
	return r.from.Read(p)
}

// watchPod cancels an exec whose pod is removed or has ended, because the requests of a lost node may never be
// answered. For a command line without a deadline it watches the node too.
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

// lostError explains a broken exec by the state of the pod and its node. If both are healthy, it wraps err, or returns nil
// if err is nil. refusal is the error of the WebSocket attempt. If the attempt was forbidden, lostError returns refusal
// instead of err.
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

// closableWriter forwards writes until it is closed.
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
