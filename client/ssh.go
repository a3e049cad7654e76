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

	"github.com/crishim/crishim/internal/rundir"
)

// sshTimeout is how long the system's ssh may take to log in: it may have to
// ask for a password.
const sshTimeout = 30 * time.Second

// complaintWait is how long a complaint of ssh may be on its way after the
// connection that it is about was closed.
const complaintWait = 2 * time.Second

// tunnelDirs hold the control socket of ssh, which it makes under another name
// first, and the sockets that it forwards.
var tunnelDirs = rundir.Kind{Name: "ssh", Entries: regexp.MustCompile(`c(\.[0-9A-Za-z]{16})?|s|f[0-9]+`)}

// tunnel is an ssh process that forwards a socket of another machine, and,
// when asked, the ports of its streaming server, over one connection.
type tunnel struct {
	target string      // ssh://user@host:port
	dir    *rundir.Dir // holds the sockets; private to the user
	cmd    *exec.Cmd
	stderr *lastWords
	done   chan struct{} // closed when the process has ended

	mu     sync.Mutex // guards relays
	relays map[string]*relay
}

// openTunnel starts ssh and waits until it forwards the socket.
func openTunnel(ctx context.Context, o *Options, e Endpoint) (*tunnel, error) {
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
	t := &tunnel{target: "ssh://" + e.Address, dir: dir, stderr: newLastWords(), done: make(chan struct{}), relays: map[string]*relay{}}
	t.cmd = exec.Command(program, "-N", "-T", "-a", "-x", "-M", "-S", t.control(), "-o", "ControlPersist=no",
		"-o", "ExitOnForwardFailure=yes", "-L", t.socket()+":"+e.Path, t.target)
	t.cmd.Stderr = t.stderr
	// It must not outlive this process, however that ends.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := t.cmd.Start(); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	go func() {
		defer close(t.done)
		_ = t.cmd.Wait() // how it ended is on its stderr
	}()
	if err := t.ready(ctx); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tunnel) control() string { return filepath.Join(t.dir.Path, "c") }

func (t *tunnel) socket() string { return filepath.Join(t.dir.Path, "s") }

// ready waits for the control socket. ssh tells nobody when it is ready, but
// makes that one last, and names it only when it listens.
func (t *tunnel) ready(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-t.done:
			return errors.New(t.said("ssh ended without a reason"))
		case <-ctx.Done():
			return fmt.Errorf("ssh did not log in: %w", ctx.Err())
		case <-tick.C:
			if _, err := os.Stat(t.control()); err == nil {
				return nil
			}
		}
	}
}

// said is ssh's last complaint.
func (t *tunnel) said(otherwise string) string {
	if line := t.stderr.line(); line != "" {
		return clean(line)
	}
	return otherwise
}

func (t *tunnel) close() error {
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

// lastWords keeps the last line that was written.
type lastWords struct {
	heard chan struct{} // closed by the first

	mu   sync.Mutex
	text string
}

func newLastWords() *lastWords { return &lastWords{heard: make(chan struct{})} }

// wait waits for the first words, but not forever.
func (w *lastWords) wait(long time.Duration) {
	select {
	case <-w.heard:
	case <-time.After(long):
	}
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text == "" && len(p) > 0 {
		close(w.heard)
	}
	w.text += string(p)
	if over := len(w.text) - 4096; over > 0 {
		w.text = w.text[over:]
	}
	return len(p), nil
}

func (w *lastWords) line() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(w.text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// explicitSSH connects to a socket on another machine.
func (c *Conn) explicitSSH(ctx context.Context, o *Options, e Endpoint) (*link, string, error) {
	limit := sshTimeout
	if o.ConnectTimeout > 0 {
		limit = o.ConnectTimeout
	}
	tctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := Candidate{Endpoint: e.String(), Kind: KindCRI}
	fail := func() (*link, string, error) {
		c.Candidates = append(c.Candidates, a)
		if ctx.Err() != nil {
			return nil, "", explicitError(ctx, o, a)
		}
		return nil, "", &Error{Endpoint: a.Endpoint, Code: codes.Unavailable, text: "connect to " + a.Endpoint + ": " + a.Detail, hint: a.Hint()}
	}
	t, err := openTunnel(tctx, o, e)
	if err != nil {
		a.State, a.Detail = StateFailed, strings.TrimPrefix(err.Error(), "ssh: ")
		return fail()
	}
	c.tunnels = append(c.tunnels, t)
	l, found := o.check(tctx, Endpoint{Network: "unix", Address: t.socket()})
	a.State, a.Detail, a.API = found.State, found.Detail, found.API
	if l == nil {
		// ssh takes the connection in any case and complains when the socket
		// at the other end does not.
		if a.State == StateFailed {
			t.stderr.wait(complaintWait)
			a.Detail = e.Path + " does not take connections there"
			if said := t.said(""); said != "" {
				a.Detail += " (" + said + ")"
			}
		}
		return fail()
	}
	a.Chosen = true
	c.Candidates = append(c.Candidates, a)
	l.endpoint, l.tunnel = e.String(), t
	return l, l.endpoint, nil
}

// relay takes connections on a local port and passes them on to a socket,
// which ssh forwards. ssh could take a port itself, but cannot choose a free one.
type relay struct {
	l      net.Listener
	socket string
	wg     sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// streamURL makes the address of a stream on the other machine usable here.
func (t *tunnel) streamURL(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address, nil // dialling it reports what is wrong
	}
	local, err := t.forward(ctx, remoteAddress(u))
	if err != nil {
		return "", err
	}
	u.Host = local
	return u.String(), nil
}

// remoteAddress is where a streaming server listens, seen from its machine.
func remoteAddress(u *url.URL) string {
	host, port := u.Hostname(), u.Port()
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(host, port)
}

// forward brings an address of the other machine here, once.
func (t *tunnel) forward(ctx context.Context, remote string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.relays == nil {
		return "", errors.New("the connection is closed")
	}
	if r, ok := t.relays[remote]; ok {
		return r.l.Addr().String(), nil
	}
	socket := filepath.Join(t.dir.Path, fmt.Sprint("f", len(t.relays)))
	cmd := exec.CommandContext(ctx, "ssh", "-S", t.control(), "-O", "forward", "-L", socket+":"+remote, t.target)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("forward %s over ssh: %w: %s", remote, err, clean(string(out)))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r := &relay{l: l, socket: socket, conns: map[net.Conn]struct{}{}}
	r.wg.Go(r.serve)
	t.relays[remote] = r
	return l.Addr().String(), nil
}

func (r *relay) serve() {
	for {
		in, err := r.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", r.socket)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.wg.Go(func() { r.join(in, out) })
	}
}

// join copies both ways until both ends are done; the end of one way is
// passed on, because a stream may go on in the other.
func (r *relay) join(a, b net.Conn) {
	r.keep(a, b)
	defer r.drop(a, b)
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if w, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = w.CloseWrite()
			}
		})
	}
	wg.Wait()
}

func (r *relay) keep(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.conns == nil {
			_ = c.Close()
			continue
		}
		r.conns[c] = struct{}{}
	}
}

func (r *relay) drop(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
		_ = c.Close()
	}
}

func (r *relay) close() {
	_ = r.l.Close()
	r.mu.Lock()
	conns := r.conns
	r.conns = nil
	for c := range conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// localStreams puts addresses that work here into answers with a stream's URL.
func (l *link) localStreams(ctx context.Context, reply any) error {
	if l.tunnel == nil {
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
	local, err := l.tunnel.streamURL(ctx, *address)
	if err != nil {
		return &Error{Endpoint: l.endpoint, Code: codes.Unavailable, text: err.Error(), err: err}
	}
	*address = local
	return nil
}
