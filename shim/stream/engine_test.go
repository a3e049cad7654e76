package stream

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/state"
)

// testImage is built by hack/engine.sh.
const testImage = "busybox:crishim"

// patience limits waits in tests. Only a failing test waits that long.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // tests open streams that are refused
	goleak.VerifyTestMain(m,
		// The Docker client keeps its connections for the next call.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		// The SPDY client waits for replies and for Close after its connection has gone.
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Stream).WaitTimeout"),
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown"),
		// The HTTP server waits briefly after it has rejected a large header.
		goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"),
		// The WebSocket client leaks its heartbeat if the server goes away.
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
	)
}

type rig struct {
	*Server
	engine *docker.Client
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	engine := enginetest.Require(t)
	if o.RecordDir == "" {
		o.RecordDir = filepath.Join(t.TempDir(), "exec")
	}
	s := New(o, engine)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left, err := os.ReadDir(o.RecordDir); err == nil && len(left) > 0 {
			t.Errorf("exec records are left: %v", left)
		}
	})
	return &rig{Server: s, engine: engine}
}

// container starts a container of the given type that is removed after the test.
func (r *rig) container(t *testing.T, kind string, change func(*container.Config, *container.HostConfig)) string {
	t.Helper()
	config := &container.Config{
		Image:  testImage,
		Cmd:    []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"},
		Labels: map[string]string{state.LabelType: kind},
	}
	host := &container.HostConfig{NetworkMode: "none"}
	if change != nil {
		change(config, host)
	}
	name := make([]byte, 8)
	_, _ = rand.Read(name)
	made, err := r.engine.ContainerCreate(t.Context(), config, host, nil, nil, "k8s_POD_crishim-stream-test-"+hex.EncodeToString(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.engine.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true}); err != nil {
			t.Logf("remove: %v", err)
		}
	})
	if err := r.engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

func (r *rig) app(t *testing.T) string {
	t.Helper()
	return r.container(t, state.TypeContainer, nil)
}

type transport func(t *testing.T, streamingURL string) remotecommand.Executor

func overSPDY(t *testing.T, streamingURL string) remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(streamingURL)
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func overWebSocket(t *testing.T, streamingURL string) remotecommand.Executor {
	t.Helper()
	e, err := remotecommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, streamingURL)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (r *rig) execURL(t *testing.T, id string, o remotecommand.StreamOptions, cmd ...string) string {
	t.Helper()
	answer, err := r.Exec(t.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: cmd, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetUrl()
}

// sh runs a shell script in a session and returns its output.
func (r *rig) sh(t *testing.T, over transport, id, script, stdin string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	o := remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}
	if stdin != "" {
		o.Stdin = strings.NewReader(stdin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = over(t, r.execURL(t, id, o, "sh", "-c", script)).StreamWithContext(ctx, o)
	return out.String(), errOut.String(), err
}

// processes lists the command lines in a container that contain a word.
func (r *rig) processes(t *testing.T, id, word string) []string {
	t.Helper()
	top, err := r.engine.ContainerTop(context.WithoutCancel(t.Context()), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, row := range top.Processes {
		if line := strings.Join(row, " "); strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}
