package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/rundir"
)

const (
	remoteTimeout   = 30 * time.Second       // ssh may ask for a password; an API server may wait for a kubelet
	stderrWait      = 2 * time.Second        // wait for ssh's error message after a connection was closed
	stderrLeft      = 500 * time.Millisecond // wait for children of ssh that keep its stderr open
	sshProbeTimeout = 5 * time.Second        // limit for the probes of the known sockets, after ssh has logged in
)

// tunnelDirs hold ssh's control socket, which ssh creates under a temporary name, and the forwarded sockets.
var tunnelDirs = rundir.Kind{Name: "ssh", Entries: lazyregexp.New(`^(c(\.[0-9A-Za-z]{16})?|s[0-9]*|f[0-9]+)$`)}

// sshTunnel is an ssh process that forwards sockets and addresses of another machine over one connection.
type sshTunnel struct {
	destination string      // ssh://user@host:port
	dir         *rundir.Dir // contains the sockets; private to the user
	cmd         *exec.Cmd
	stderr      *stderrTail
	done        chan struct{} // closed when the process has ended

	mu        sync.Mutex        // guards forwarded
	forwarded map[string]string // local sockets by remote address
}

// probeSSH probes a socket on another machine through a tunnel. Closing the connection ends the tunnel.
func (o *Options) probeSSH(ctx context.Context, e Endpoint, image bool) found {
	t, err := openTunnel(ctx, o, e, e.Path)
	if err != nil {
		return found{Candidate: Candidate{Endpoint: e.String(), Kind: kindCRI, State: stateFailed, Detail: strings.TrimPrefix(err.Error(), "ssh: ")}}
	}
	f := o.probeCRI(ctx, Endpoint{Network: "unix", Address: t.socket(0)}, image)
	f.Endpoint = e.String()
	if f.State == StateReady {
		f.conn.endpoint, f.conn.there, f.conn.stop = f.Endpoint, t.dial, t.close
		return f
	}
	// ssh accepts the connection before it dials the remote socket, and writes an error if that socket refuses. The
	// detail quotes this error.
	if f.State == stateFailed {
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

// probeHost discovers the runtime of another machine over one ssh connection. An engine is then dialled as
// docker+ssh://, so that the embedded shim knows that it is remote.
func (o *Options) probeHost(ctx context.Context, e Endpoint) found {
	failed := found{Candidate: Candidate{Endpoint: e.String(), Kind: kindCRI, State: stateFailed}}
	known := o.knownSockets()
	var remote []string
	for _, k := range known {
		remote = append(remote, k.Path)
	}
	t, err := openTunnel(ctx, o, e, append(remote, DockerSocket)...)
	if err != nil {
		failed.Detail = strings.TrimPrefix(err.Error(), "ssh: ")
		return failed
	}
	there := *o
	there.Known = nil
	for i, k := range known {
		there.Known = append(there.Known, Known{k.Name, t.socket(i), k.Containerd})
	}
	there.Engines = func(string) []Engine { return []Engine{{Host: "unix://" + t.socket(len(known))}} }
	there.ProbeTimeout = cmp.Or(o.ConnectTimeout, sshProbeTimeout)
	list, err := there.discover(ctx, false)
	for i, f := range list {
		if f.Chosen && f.Kind == kindCRI {
			e.Path = known[i].Path
			f.Endpoint, f.Chosen = e.String(), false
			f.conn.endpoint, f.conn.there, f.conn.stop = f.Endpoint, t.dial, t.close
			return f
		}
	}
	if err := t.close(); err != nil {
		o.debugf("close %s: %v", e, err)
	}
	if err == nil {
		engine := Engine{Host: "ssh://" + e.Address, Batch: o.Batch}
		return found{Candidate: Candidate{Endpoint: "docker+" + engine.Host, Kind: KindEngine, Name: "Docker", State: StateReady, Detail: chosenOf(list).Detail}, engine: engine}
	}
	if failed.State, failed.Detail = StateAbsent, "no container runtime at the usual sockets"; ctx.Err() != nil {
		failed.State, failed.Detail = StateHangs, "no answer"
	}
	return failed
}

func openTunnel(ctx context.Context, o *Options, e Endpoint, remote ...string) (*sshTunnel, error) {
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
		done: make(chan struct{}), forwarded: map[string]string{},
	}
	args := []string{"-N", "-T", "-a", "-x", "-M", "-S", t.control(), "-o", "ControlPersist=no", "-o", "ExitOnForwardFailure=yes"}
	if o.Batch {
		args = append(args, "-o", "BatchMode=yes")
	}
	for i, path := range remote {
		args = append(args, "-L", t.socket(i)+":"+path)
	}
	t.cmd = exec.Command(program, append(args, t.destination)...)
	t.cmd.Stderr = t.stderr
	// ssh must not outlive this process. With Batch it also gets its own process group, so that close ends its children. A
	// process in another group cannot prompt on the terminal, but Batch never prompts.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: o.Batch}
	t.cmd.WaitDelay = stderrLeft
	if err := t.cmd.Start(); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	go func() {
		defer close(t.done)
		_ = t.cmd.Wait() // stderr has the reason
	}()
	if err := t.waitReady(ctx); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *sshTunnel) control() string { return filepath.Join(t.dir.Path, "c") }

func (t *sshTunnel) socket(i int) string { return filepath.Join(t.dir.Path, fmt.Sprint("s", i)) }

// waitReady waits for the control socket, which ssh creates after it listens on the forwarded sockets.
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
	t.signal(syscall.SIGTERM)
	select {
	case <-t.done:
	case <-time.After(5 * time.Second):
		t.signal(syscall.SIGKILL)
		<-t.done
	}
	return t.dir.Remove()
}

func (t *sshTunnel) signal(s syscall.Signal) {
	if !t.cmd.SysProcAttr.Setpgid {
		_ = t.cmd.Process.Signal(s)
		return
	}
	select {
	case <-t.done: // the PID may have been reused
	default:
		_ = syscall.Kill(-t.cmd.Process.Pid, s)
	}
}

// stderrTail keeps the end of a program's stderr.
type stderrTail struct {
	written chan struct{} // closed when the program first writes to stderr

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

func (t *sshTunnel) dial(ctx context.Context, _, remote string) (net.Conn, error) {
	socket, err := t.forward(ctx, remote)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "unix", socket)
}

// forward returns a local socket that ssh forwards to an address on the other machine.
func (t *sshTunnel) forward(ctx context.Context, remote string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if socket, ok := t.forwarded[remote]; ok {
		return socket, nil
	}
	socket := filepath.Join(t.dir.Path, fmt.Sprint("f", len(t.forwarded)))
	cmd := exec.CommandContext(ctx, "ssh", "-S", t.control(), "-O", "forward", "-L", socket+":"+remote, t.destination)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("forward %s over ssh: %w: %s", remote, err, clean(string(out)))
	}
	t.forwarded[remote] = socket
	return socket, nil
}
