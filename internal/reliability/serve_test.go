package reliability

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
)

// TestMain also lets this binary act as crishim in a separate process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"crishim": func() {
		os.Exit(commands.Main(context.Background(), os.Args, cli.SystemProcess("v0.0.0-test")))
	}})
}

// patience limits waits for quick operations and allows for slow machines.
const patience = 60 * time.Second

const testImage = "busybox:crishim"

// A serve is "crishim serve" in a separate process that can be killed and restarted with the same socket.
type serve struct {
	runtimeapi.RuntimeServiceClient

	images runtimeapi.ImageServiceClient
	t      testing.TB
	dir    string // contains only the socket and serve's other files
	args   []string
	log    string
	setup  func(*exec.Cmd)
	conn   *grpc.ClientConn
	mu     sync.Mutex // guards the fields below
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // result of the process, once exited is closed
}

// startServe starts serve for an engine and waits until it answers. It runs until the test ends.
func startServe(t testing.TB, engine string, flags ...string) *serve {
	t.Helper()
	s := newServe(t, engine, flags...)
	s.start()
	return s
}

func newServe(t testing.TB, engine string, flags ...string) *serve {
	t.Helper()
	s := &serve{t: t, dir: test.SocketDir(t), log: filepath.Join(t.TempDir(), "serve.log")}
	s.args = append([]string{"serve", "--listen", s.endpoint(), "--docker-endpoint", engine, "--log-level", "debug"}, flags...)
	var err error
	if s.conn, err = grpc.NewClient(s.endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	s.RuntimeServiceClient, s.images = runtimeapi.NewRuntimeServiceClient(s.conn), runtimeapi.NewImageServiceClient(s.conn)
	t.Cleanup(func() {
		s.kill()
		_ = s.conn.Close()
		if t.Failed() {
			if text, err := os.ReadFile(s.log); err == nil {
				t.Logf("log of serve:\n%s", tail(text, 8<<10))
			}
		}
	})
	return s
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

func (s *serve) endpoint() string { return "unix://" + filepath.Join(s.dir, "s") }

// move changes the socket's directory before serve is started.
func (s *serve) move(t testing.TB, dir string) {
	t.Helper()
	old := s.endpoint()
	if err := os.Remove(s.dir); err != nil {
		t.Fatal(err)
	}
	s.dir = dir
	for i, arg := range s.args {
		if arg == old {
			s.args[i] = s.endpoint()
		}
	}
	conn, err := grpc.NewClient(s.endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.conn.Close()
	s.conn = conn
	s.RuntimeServiceClient, s.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
}

func (s *serve) start() {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("crishim", s.args...)
	cmd.Stderr = log
	if s.setup != nil {
		s.setup(cmd)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	s.mu.Lock()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()
	go func() {
		err := cmd.Wait()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		close(exited)
	}()
	s.conn.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), patience)
	defer cancel()
	_, err = s.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
	for status.Code(err) == codes.Unavailable { // the connection to the killed serve
		_, err = s.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
	}
	if err != nil {
		s.t.Fatalf("serve does not answer: %v", err)
	}
}

func (s *serve) process() (*exec.Cmd, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.exited
}

func (s *serve) pid() int {
	cmd, _ := s.process()
	return cmd.Process.Pid
}

func (s *serve) kill() {
	cmd, exited := s.process()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-exited
}

// stop sends SIGTERM like a service manager. serve must exit with 0 and leave nothing behind.
func (s *serve) stop() {
	s.t.Helper()
	cmd, exited := s.process()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	select {
	case <-exited:
	case <-time.After(patience):
		s.t.Fatal("serve does not end on SIGTERM")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.t.Errorf("serve ended badly: %v", s.err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
		s.t.Errorf("serve left %v, %v", left, err)
	}
}

// logged returns an error unless a line of serve's log contains all parts.
func (s *serve) logged(parts ...string) error {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return nil
		}
	}
	return fmt.Errorf("no line of serve's log has %q", parts)
}

// open lists the process's open files whose path contains part.
func (s *serve) open(part string) []string {
	dir := fmt.Sprintf("/proc/%d/fd", s.pid())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.Contains(target, part) {
			found = append(found, target)
		}
	}
	return found
}

// nextToSocket returns the other files in the directory of the socket, except an empty directory for session records.
func (s *serve) nextToSocket() []string {
	var found []string
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if name := strings.TrimPrefix(path, s.dir); err == nil && name != "" && name != "/s" && name != "/s.exec" {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		found = append(found, err.Error())
	}
	return found
}

func wait(t testing.TB, problem func() error) {
	t.Helper()
	waitFor(t, patience, problem)
}

func waitFor(t testing.TB, long time.Duration, problem func() error) {
	t.Helper()
	deadline := time.After(long)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Errorf("waited in vain: %v", err)
			return
		}
	}
}

// none returns an error if found is not empty.
func none[T any](what string, found []T) error {
	if len(found) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(fmt.Sprintf("%s: %v", what, found)))
}
