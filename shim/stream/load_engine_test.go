package stream

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/docker"
)

// load returns the amount of work of a test: always, or whole with make load.
func load(always, whole int) int {
	if os.Getenv("CRISHIM_TEST_LONG") != "" {
		return whole
	}
	return always
}

// allowance is for idle connections to the engine.
const allowance = 20

// holds records the number of descriptors and goroutines. The returned function waits until there are no more than
// before.
func holds(t *testing.T) func(*testing.T) {
	t.Helper()
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(open)
	}
	filesBefore, goroutinesBefore := files(), runtime.NumGoroutine()
	return func(t *testing.T) {
		t.Helper()
		test.Until(t, fmt.Sprintf("%d descriptors or fewer", filesBefore+allowance), func() bool { return files() <= filesBefore+allowance })
		test.Until(t, fmt.Sprintf("%d goroutines or fewer", goroutinesBefore+allowance), func() bool {
			return runtime.NumGoroutine() <= goroutinesBefore+allowance
		})
	}
}

// All sessions are open before the first gets its input.
func TestSessionsAtOnce(t *testing.T) {
	r := newRig(t, Options{})
	id := r.app(t)
	if _, _, err := r.sh(t, overSPDY, id, ":", ""); err != nil {
		t.Fatal(err)
	}
	nothingLeaks := holds(t)
	const script = "echo ready; read -r line; echo got $line; echo to stderr $line >&2; exit $line"
	count := load(30, 200)
	var running, ready sync.WaitGroup
	ready.Add(count)
	everyone := make(chan struct{})
	for i := range count {
		running.Go(func() {
			out := &firstWrite{done: ready.Done}
			var errOut lockedBuffer
			in, typed := io.Pipe()
			o := remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: &errOut}
			go func() {
				<-everyone
				fmt.Fprintln(typed, i%100+1)
				typed.Close()
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
			defer cancel()
			err := overSPDY(t, r.execURL(t, id, o, "sh", "-c", script)).StreamWithContext(ctx, o)
			out.once.Do(out.done)
			wantOut, wantErr := fmt.Sprintf("ready\ngot %d\n", i%100+1), fmt.Sprintf("to stderr %d\n", i%100+1)
			if exitCode(err) != i%100+1 || out.String() != wantOut || errOut.String() != wantErr {
				t.Errorf("session %d: got %v, %q, %q", i, err, out.String(), errOut.String())
			}
		})
	}
	ready.Wait()
	close(everyone)
	running.Wait()
	if left := r.processes(t, id, "echo ready"); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	nothingLeaks(t)
}

type firstWrite struct {
	lockedBuffer
	once sync.Once
	done func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	defer w.once.Do(w.done)
	return w.lockedBuffer.Write(b)
}

// If the engine goes away, exec sessions end with an error. A port-forward does not need the engine and continues.
func TestEngineGoesAway(t *testing.T) {
	direct := newRig(t, Options{})
	id, pod := direct.app(t), direct.sandbox(t, nil)
	direct.serveEcho(t, pod, "127.0.0.1")

	network, address, _ := strings.Cut(direct.engine.Endpoint().Host, "://")
	if network != "unix" {
		t.Skipf("the engine at %s is not behind a unix socket", address)
	}
	socket := filepath.Join(test.SocketDir(t), "e.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	proxy := test.StartProxy(t, l, network, address)
	engine, err := docker.New(docker.Options{Host: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	s := New(Options{RecordDir: filepath.Join(t.TempDir(), "exec")}, engine)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := &rig{Server: s, engine: direct.engine}
	local := r.forward(t, pod, ":7000")[0]

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out lockedBuffer
	o := remotecommand.StreamOptions{Stdout: &out}
	ended := map[string]chan error{"exec": make(chan error, 1), "attach": make(chan error, 1), "exec sync": make(chan error, 1)}
	session := overSPDY(t, r.execURL(t, id, o, "sh", "-c", "echo ready; exec sleep 5050"))
	go func() { ended["exec"] <- session.StreamWithContext(ctx, o) }()
	answer, err := r.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	attached := overSPDY(t, answer.GetUrl())
	go func() {
		ended["attach"] <- attached.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard})
	}()
	go func() {
		_, err := r.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "5050"}})
		ended["exec sync"] <- err
	}()
	test.Until(t, "both commands to run", func() bool {
		return out.String() == "ready\n" && len(r.processes(t, id, "sleep 5050")) > 1
	})
	test.Until(t, "three streams of the engine", func() bool { return proxy.Open() >= 3 })

	proxy.Close()
	for what, end := range ended {
		if err := <-end; err == nil || ctx.Err() != nil {
			t.Errorf("%s: got %v, want that the engine is gone", what, err)
		}
	}
	if answer, err := talk(t, local, "still"); answer != "still" {
		t.Errorf("port-forward: got %q, %v", answer, err)
	}
}
