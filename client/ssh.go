package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/internal/rundir"
)

const (
	// sshTimeout is how long the system's ssh may take to log in: it may have to
	// ask for a password.
	sshTimeout = 30 * time.Second
	// stderrWait is how long an error message of ssh may take to arrive after the
	// connection that it is about was closed.
	stderrWait = 2 * time.Second
)

// tunnelDirs hold the control socket of ssh, which it makes under another name
// first, and the sockets that it forwards.
var tunnelDirs = rundir.Kind{Name: "ssh", Entries: regexp.MustCompile(`c(\.[0-9A-Za-z]{16})?|s|f[0-9]+`)}

// sshTunnel is an ssh process that forwards a socket of another machine, and,
// when asked, the ports of its streaming server, over one connection.
type sshTunnel struct {
	destination string      // ssh://user@host:port
	dir         *rundir.Dir // holds the sockets; private to the user
	cmd         *exec.Cmd
	stderr      *stderrTail
	done        chan struct{} // closed when the process has ended

	mu     sync.Mutex        // guards relays
	relays map[string]*relay // by remote address; nil once closed
}

// probeSSH probes a socket on another machine, through a tunnel that stays open with the
// connection.
func (o *Options) probeSSH(ctx context.Context, e Endpoint, image bool) found {
	t, err := openTunnel(ctx, o, e)
	if err != nil {
		return found{Candidate: Candidate{Endpoint: e.String(), Kind: KindCRI, State: StateFailed, Detail: strings.TrimPrefix(err.Error(), "ssh: ")}}
	}
	f := o.probeCRI(ctx, Endpoint{Network: "unix", Address: t.socket()}, image)
	f.Endpoint = e.String()
	if f.State == StateReady {
		f.conn.endpoint, f.conn.tunnel, f.conn.stop = f.Endpoint, t, t.close
		return f
	}
	// ssh takes the connection in any case and complains when the socket
	// at the other end does not.
	if f.State == StateFailed {
		select {
		case <-t.stderr.written:
		case <-time.After(stderrWait):
		}
		f.Detail = e.Path + " does not take connections there"
		if line := t.stderr.lastLine(); line != "" {
			f.Detail += " (" + line + ")"
		}
	}
	if err := t.close(); err != nil {
		o.debugf("close %s: %v", e, err)
	}
	return f
}

// openTunnel starts ssh and waits until it forwards the socket.
func openTunnel(ctx context.Context, o *Options, e Endpoint) (*sshTunnel, error) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, errors.New("the ssh program is not installed")
	}
	base, err := rundir.Base(o.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("directory for the sockets of ssh: %w", err)
	}
	rundir.Sweep(base, tunnelDirs, nil)
	dir, err := rundir.New(base, tunnelDirs)
	if err != nil {
		return nil, fmt.Errorf("directory for the sockets of ssh: %w", err)
	}
	t := &sshTunnel{
		destination: "ssh://" + e.Address, dir: dir, stderr: &stderrTail{written: make(chan struct{})},
		done: make(chan struct{}), relays: map[string]*relay{},
	}
	t.cmd = exec.Command(program, "-N", "-T", "-a", "-x", "-M", "-S", t.control(), "-o", "ControlPersist=no",
		"-o", "ExitOnForwardFailure=yes", "-L", t.socket()+":"+e.Path, t.destination)
	t.cmd.Stderr = t.stderr
	// It must not outlive this process, however that ends.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := t.cmd.Start(); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	go func() {
		defer close(t.done)
		_ = t.cmd.Wait() // its stderr has the reason
	}()
	if err := t.waitReady(ctx); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *sshTunnel) control() string { return filepath.Join(t.dir.Path, "c") }

func (t *sshTunnel) socket() string { return filepath.Join(t.dir.Path, "s") }

// waitReady waits for the control socket, which ssh creates last, and only when it listens.
func (t *sshTunnel) waitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-t.done:
			if line := t.stderr.lastLine(); line != "" {
				return errors.New(line)
			}
			return errors.New("ssh ended without a reason")
		case <-ctx.Done():
			return fmt.Errorf("ssh did not log in: %w", ctx.Err())
		case <-tick.C:
			if _, err := os.Stat(t.control()); err == nil {
				return nil
			}
		}
	}
}

func (t *sshTunnel) close() error {
	t.mu.Lock()
	relays := t.relays
	t.relays = nil
	t.mu.Unlock()
	for _, r := range relays {
		r.close()
	}
	_ = t.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-t.done:
	case <-time.After(5 * time.Second):
		_ = t.cmd.Process.Kill()
		<-t.done
	}
	return t.dir.Remove()
}

// stderrTail keeps the end of what a program writes.
type stderrTail struct {
	written chan struct{} // closed by the first write

	mu   sync.Mutex // guards text
	text string
}

func (w *stderrTail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text == "" && len(p) > 0 {
		close(w.written)
	}
	w.text += string(p)
	w.text = w.text[max(0, len(w.text)-4096):]
	return len(p), nil
}

func (w *stderrTail) lastLine() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSpace(w.text)
	return clean(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]))
}

// localStreams replaces the URL of a stream on the other machine by one that works here.
func (c *criConn) localStreams(ctx context.Context, reply any) error {
	if c.tunnel == nil {
		return nil
	}
	var address *string
	switch r := reply.(type) {
	case *runtimeapi.ExecResponse:
		address = &r.Url
	case *runtimeapi.AttachResponse:
		address = &r.Url
	case *runtimeapi.PortForwardResponse:
		address = &r.Url
	default:
		return nil
	}
	u, err := url.Parse(*address)
	if err != nil || u.Host == "" {
		return nil // dialling it reports what is wrong
	}
	if u.Host, err = c.tunnel.forward(ctx, stream.DialableHost(u)); err != nil {
		return &Error{Endpoint: c.endpoint, Code: codes.Unavailable, text: err.Error(), err: err}
	}
	*address = u.String()
	return nil
}

// forward brings an address of the other machine here, once.
func (t *sshTunnel) forward(ctx context.Context, remote string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.relays == nil {
		return "", errors.New("the connection is closed")
	}
	if r, ok := t.relays[remote]; ok {
		return r.listener.Addr().String(), nil
	}
	socket := filepath.Join(t.dir.Path, fmt.Sprint("f", len(t.relays)))
	cmd := exec.CommandContext(ctx, "ssh", "-S", t.control(), "-O", "forward", "-L", socket+":"+remote, t.destination)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("forward %s over ssh: %w: %s", remote, err, clean(string(out)))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &relay{listener: l, cancel: cancel}
	r.wg.Go(func() { r.serve(ctx, socket) })
	t.relays[remote] = r
	return l.Addr().String(), nil
}

// relay takes connections on a local port and passes them on to a socket,
// which ssh forwards. ssh could take a port itself, but cannot choose a free one.
type relay struct {
	listener net.Listener
	cancel   context.CancelFunc // closes the connections
	wg       sync.WaitGroup
}

func (r *relay) serve(ctx context.Context, socket string) {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { relayConn(ctx, in, socket) })
	}
}

// relayConn copies both ways until both ends are done; the end of one way is
// passed on, because a stream may go on in the other.
func relayConn(ctx context.Context, in net.Conn, socket string) {
	defer in.Close()
	out, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
	defer stop()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if w, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = w.CloseWrite()
			}
		})
	}
	wg.Wait()
}

func (r *relay) close() {
	r.cancel()
	_ = r.listener.Close()
	r.wg.Wait()
}
