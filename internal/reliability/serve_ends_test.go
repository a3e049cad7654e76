package reliability

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestServeOnSystemdsSocket checks that serve uses a socket from systemd, reports its state to systemd and does not
// remove the socket.
func TestServeOnSystemdsSocket(t *testing.T) {
	t.Parallel()
	s := newServe(t, "unix:///nonexistent/engine.sock")
	path := strings.TrimPrefix(s.endpoint(), "unix://")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	passed, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	notify := filepath.Join(t.TempDir(), "n")
	if len(notify) > 100 { // maximum length of a socket address
		notify = filepath.Join(s.dir, "n")
	}
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	s.args[2] = "fd://"
	// LISTEN_PID must be the pid of the process itself.
	start := func(sockets string) {
		cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec crishim "$@"`, "sh"}, s.args...)...)
		cmd.Env = append(os.Environ(), "LISTEN_FDS="+sockets, "NOTIFY_SOCKET="+notify)
		cmd.ExtraFiles = []*os.File{passed}
		log, err := os.Create(s.log)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exited := make(chan struct{})
		s.cmd, s.exited = cmd, exited
		go func() {
			defer close(exited)
			err := cmd.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.err = err
		}()
	}
	hear := func(want string) {
		t.Helper()
		b := make([]byte, 100)
		_ = told.SetReadDeadline(time.Now().Add(patience))
		if n, err := told.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("systemd is told %q, %v, want %q", b[:n], err, want)
		}
	}
	start("2")
	<-s.exited
	if text, err := os.ReadFile(s.log); err != nil || !strings.Contains(string(text), `systemd passed "2" sockets, need one`) || s.err == nil {
		t.Errorf("two sockets: got %s, %v, %v", text, err, s.err)
	}
	start("1")
	hear("READY=1")
	if v, err := s.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil || v.GetRuntimeName() != "docker" {
		t.Errorf("got %v, %v", v, err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	<-s.exited
	if s.err != nil {
		t.Errorf("serve ended with %v", s.err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Errorf("systemd's socket: got %v, %v", info, err)
	}

	// A call during the restart, as in an upgrade, waits for the next serve.
	conn, err := grpc.NewClient(s.endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
		answered <- err
	}()
	start("1")
	hear("READY=1")
	if err := <-answered; err != nil {
		t.Errorf("a call between two serves: %v", err)
	}
}

// TestServeEndsWithOpenSessionsOnEngine checks SIGTERM: running requests complete, event streams end, and sessions are
// closed with a reason and their processes killed. The container is not affected.
func TestServeEndsWithOpenSessionsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.pod(t)
	s := startServe(t, h.endpoint())
	for _, step := range []func() error{
		func() error { return p.run(t.Context(), s) },
		func() error { return p.create(t.Context(), s) },
		func() error { return p.start(t.Context(), s) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	events, err := s.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		for {
			if _, err := events.Recv(); err != nil {
				told <- err
				return
			}
		}
	}()
	sessions := map[string]*exec.Cmd{
		"exec":   exec.Command("crishim", "-r", s.endpoint(), "exec", p.containerID, "sh", "-c", "echo open; exec sleep 4711"),
		"attach": exec.Command("crishim", "-r", s.endpoint(), "attach", p.containerID),
	}
	errs := map[string]*bytes.Buffer{}
	for name, cmd := range sessions {
		errs[name] = new(bytes.Buffer)
		cmd.Stderr = errs[name]
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill() }()
		if name == "exec" {
			if _, err := io.ReadFull(out, make([]byte, len("open\n"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	slow := make(chan error, 1)
	go func() {
		r, err := s.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: p.containerID, Cmd: []string{"sh", "-c", "touch /begun; sleep 2; echo done"}})
		if err == nil && string(r.GetStdout()) != "done\n" {
			err = errors.New("got " + string(r.GetStdout()))
		}
		slow <- err
	}()
	wait(t, func() error {
		r, err := s.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: p.containerID, Cmd: []string{"test", "-e", "/begun"}})
		if err == nil && r.GetExitCode() != 0 {
			err = errors.New("the slow request has not begun")
		}
		return err
	})
	s.stop()
	if err := <-slow; err != nil {
		t.Errorf("a running request: got %v", err)
	}
	if err := <-told; !errors.Is(err, io.EOF) {
		t.Errorf("the stream of events: got %v, want its end", err)
	}
	for name, cmd := range sessions {
		err := cmd.Wait()
		if err == nil || !strings.HasPrefix(errs[name].String(), "crishim: ") || strings.Contains(errs[name].String(), "canceled") {
			t.Errorf("%s: got %v and %q, want a failure that is explained", name, err, errs[name])
		}
	}
	top := exec.Command("crishim", "-r", strings.Replace(h.endpoint(), "unix://", "docker://", 1), "exec", p.containerID, "ps")
	out, err := top.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("4711")) || !bytes.Contains(out, []byte("while :")) {
		t.Errorf("got %s, %v, want the container's own process and not that of the session", out, err)
	}
}

// TestServeOutlivesTheReaderOfItsLog simulates a restart of journald.
func TestServeOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	s := newServe(t, "unix:///nonexistent/engine.sock")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	s.setup = func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = writer, writer }
	s.start()
	reader.Close()
	for range 3 { // each request is logged
		if _, err := s.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.Unavailable {
			t.Fatalf("got %v", err)
		}
		if _, err := s.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
			t.Fatalf("serve has ended with the reader of its log: %v", err)
		}
	}
	s.stop()
}
