package reliability

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/stream"
)

// soakClients is the number of concurrent clients. Each uses one pod after the other.
const soakClients = 4

// outage is the maximum downtime of a restarted engine, which stops its containers first.
const outage = 5 * time.Minute

// stuckMount is an error of Docker 20.10 for containers whose mount count it lost in a restart during their start. It
// can never remove them.
const stuckMount = "device or resource busy"

// TestSoakOnEngine is "make soak": concurrent clients create pods with serve, use them in all ways and remove them,
// while the engine goes away and comes back. Each operation must succeed unless the engine was away meanwhile. At the
// end, serve's and the machine's resources are as after the first pods.
//
// SOAK is the duration. An outage closes the engine's connections and refuses new ones for a while. If SOAK_RESTART is
// set to a command that restarts the engine, every second outage is a restart.
func TestSoakOnEngine(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Skip("SOAK=5m or another time; make soak")
	}
	s := newSoak(t)
	s.client(t.Context(), t, 0) // creates one-time resources: the pause image, connections
	s.round(t, 30*time.Second)
	s.settle(t)
	before := s.look(t)
	t.Logf("before: %+v", before)

	s.round(t, long)
	s.settle(t)
	var after figures
	wait(t, func() error {
		after = s.look(t)
		after.containers -= int(s.stuck.Load())
		return before.grown(after)
	})
	t.Logf("after %d pods, %d of them disturbed by %d outages: %+v", s.pods.Load(), s.disturbed.Load(), s.outages.Load(), after)
	s.serve.stop()
}

type soak struct {
	host    host
	proxy   *proxy
	serve   *serve
	metrics string

	temporary string // serve's private TMPDIR

	pods, disturbed, outages, stuck atomic.Int64
	away                            sync.RWMutex // guards epoch and gone
	epoch                           int64        // incremented when the engine goes and comes
	gone                            bool
}

func newSoak(t *testing.T) *soak {
	h := newHost(t)
	address := freeAddress(t)
	proxy := startProxy(t, h.endpoint())
	s := &soak{host: h, proxy: proxy, serve: newServe(t, proxy.Host, "--metrics-addr", address, "--log-level", "info"), metrics: address, temporary: t.TempDir()}
	s.serve.setup = func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "TMPDIR="+s.temporary) }
	s.serve.start()
	return s
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// round runs all clients for a time, with an outage every 20 seconds.
func (s *soak) round(t *testing.T, long time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var clients sync.WaitGroup
	for n := range soakClients {
		clients.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				s.client(t.Context(), t, n)
			}
		})
	}
	tick := time.NewTicker(20 * time.Second)
	defer tick.Stop()
	for ctx.Err() == nil && !t.Failed() {
		select {
		case <-ctx.Done():
		case <-tick.C:
			s.outage(t)
		}
	}
	clients.Wait()
}

func (s *soak) outage(t *testing.T) {
	n := s.outages.Add(1)
	s.setAway(true)
	defer s.setAway(false)
	if command := os.Getenv("SOAK_RESTART"); command != "" && n%2 == 0 {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	} else {
		s.proxy.Down(true)
		time.Sleep(2 * time.Second) // the length of the outage
		s.proxy.Down(false)
	}
	waitFor(t, outage, func() error { return s.ready(t.Context()) })
}

func (s *soak) ready(ctx context.Context) error {
	r, err := s.serve.Status(ctx, &runtimeapi.StatusRequest{})
	for _, c := range r.GetStatus().GetConditions() {
		if c.GetType() == "RuntimeReady" && !c.GetStatus() {
			err = fmt.Errorf("not ready: %s", c.GetMessage())
		}
	}
	return err
}

func (s *soak) setAway(gone bool) {
	s.away.Lock()
	defer s.away.Unlock()
	s.epoch++
	s.gone = gone
}

func (s *soak) now() (epoch int64, gone bool) {
	s.away.RLock()
	defer s.away.RUnlock()
	return s.epoch, s.gone
}

// client runs the life of one pod.
func (s *soak) client(ctx context.Context, t *testing.T, n int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	epoch, gone := s.now()
	p := s.host.pod(t)
	err := s.live(ctx, p)
	if now, _ := s.now(); err != nil && (gone || now != epoch) {
		s.disturbed.Add(1)
		err = nil
	}
	if err != nil {
		t.Errorf("client %d: %v", n, err)
	}
	s.pods.Add(1)
	stuck := false
	waitFor(t, outage, func() error {
		// Results of a request that lost the engine may appear late.
		err := s.remove(t.Context(), p)
		if stuck = err != nil && strings.Contains(err.Error(), stuckMount); stuck {
			return nil
		}
		return errors.Join(err, p.left(t.Context()), none("processes of the pod", processes(p.traces)))
	})
	if stuck {
		s.stuck.Add(1)
		t.Logf("the engine cannot remove pod %s, and serve says so", p.id)
		return
	}
	if err := os.RemoveAll(p.config.GetLogDirectory()); err != nil {
		t.Error(err)
	}
}

func (s *soak) remove(ctx context.Context, p *pod) error {
	ids, err := p.sandboxes(ctx, s.serve)
	if err != nil {
		return err
	}
	for _, p.id = range ids {
		if err := p.stop(ctx, s.serve); err != nil {
			return err
		}
		if err := p.remove(ctx, s.serve); err != nil {
			return err
		}
	}
	return nil
}

func (s *soak) live(ctx context.Context, p *pod) error {
	for _, f := range []func(context.Context, runtimeapi.RuntimeServiceClient) error{p.run, p.create, p.start} {
		if err := f(ctx, s.serve); err != nil {
			return err
		}
	}
	for _, f := range []func(context.Context, *pod) error{s.execSync, s.exec, s.attach, s.logs, s.forward, s.stats} {
		if err := f(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (s *soak) execSync(ctx context.Context, p *pod) error {
	r, err := s.serve.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.containerID, Cmd: []string{"sh", "-c", "echo out; exit 3"}, Timeout: 60})
	if err != nil {
		return err
	}
	if string(r.GetStdout()) != "out\n" || r.GetExitCode() != 3 {
		return fmt.Errorf("exec sync: got %q, %d", r.GetStdout(), r.GetExitCode())
	}
	return nil
}

func (s *soak) exec(ctx context.Context, p *pod) error {
	r, err := s.serve.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: p.containerID, Cmd: []string{"cat"}, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	text := strings.Repeat("0123456789abcdef", 4<<10)
	var out, errs bytes.Buffer
	if err := stream.Run(ctx, r.GetUrl(), stream.Streams{In: strings.NewReader(text), Out: &out, Err: &errs}, stream.Options{}); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	if out.String() != text {
		return fmt.Errorf("exec: sent %d bytes, got %d", len(text), out.Len())
	}
	return nil
}

// attach attaches for the length of some other requests.
func (s *soak) attach(ctx context.Context, p *pod) error {
	r, err := s.serve.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: p.containerID, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	session, leave := context.WithCancel(ctx)
	defer leave()
	ended := make(chan error, 1)
	go func() {
		ended <- stream.Run(session, r.GetUrl(), stream.Streams{Out: io.Discard, Err: io.Discard}, stream.Options{})
	}()
	for range 3 {
		if err := s.execSync(ctx, p); err != nil {
			return err
		}
	}
	select {
	case err := <-ended:
		return fmt.Errorf("attach: ended before its container: %w", err)
	default:
	}
	leave()
	<-ended
	return nil
}

func (s *soak) logs(ctx context.Context, p *pod) error {
	path := filepath.Join(p.config.GetLogDirectory(), p.container().GetLogPath())
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if text, err := os.ReadFile(path); err == nil && bytes.HasSuffix(text, []byte(" stdout F ready\n")) {
			tick.Stop()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no line in %s: %w", path, ctx.Err())
		}
	}
}

// forward connects first to an unused port, then to a server that answers.
func (s *soak) forward(ctx context.Context, p *pod) error {
	const answer = "HTTP/1.0 200 OK\r\n\r\nhere\n"
	_, err := s.serve.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.containerID, Timeout: 60, Cmd: []string{
		"sh", "-c", "printf 'HTTP/1.0 200 OK\\r\\n\\r\\nhere\\n' >/tmp/a; nc -l -p 8080 </tmp/a >/dev/null 2>&1 & while ! netstat -ltn | grep -q :8080; do :; done",
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	url := func(ctx context.Context) (string, error) {
		r, err := s.serve.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{8080}})
		return r.GetUrl(), err
	}
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- stream.Forward(ctx, url, []stream.Port{{Remote: 8080}}, stream.Options{
			Addresses: []string{"127.0.0.1"}, Ready: func(a net.Addr, _ uint16) { ready <- a },
		})
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("forward: %w", err)
	case address := <-ready:
		err = ask(ctx, address.String(), answer)
		cancel()
		<-ended
		return err
	}
}

func ask(ctx context.Context, address, want string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	got, err := io.ReadAll(io.LimitReader(conn, int64(len(want))))
	if err != nil {
		return fmt.Errorf("forwarded connection: after %q: %w", got, err)
	}
	if string(got) != want {
		return fmt.Errorf("forwarded connection: got %q", got)
	}
	return nil
}

// stats requests the stats that a kubelet polls.
func (s *soak) stats(ctx context.Context, p *pod) error {
	if _, err := s.serve.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: p.containerID}); err != nil {
		return err
	}
	if _, err := s.serve.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id}); err != nil {
		return err
	}
	_, err := p.listed(ctx, s.serve)
	return err
}

func (s *soak) settle(t *testing.T) {
	waitFor(t, outage, func() error { return s.ready(t.Context()) })
}

// figures are resource counts that must not grow.
type figures struct {
	containers, images, volumes, mounts, files int
	temporary, children                        int
	goroutines, descriptors                    int
	memory                                     int // resident set in MiB
}

// Tolerated growth: idle connections, and memory that Go retains.
const (
	moreGoroutines  = 12
	moreDescriptors = 6
	moreMemory      = 48
)

func (f figures) grown(now figures) error {
	switch {
	case now.containers > f.containers, now.images > f.images, now.volumes > f.volumes, now.mounts > f.mounts, now.files > f.files,
		now.temporary > f.temporary, now.children > f.children,
		now.goroutines > f.goroutines+moreGoroutines, now.descriptors > f.descriptors+moreDescriptors, now.memory > f.memory+moreMemory:
		return fmt.Errorf("before: %+v, now: %+v", f, now)
	}
	return nil
}

func (s *soak) look(t *testing.T) figures {
	t.Helper()
	ctx := t.Context()
	var f figures
	containers, err := s.host.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "_reliability_"))})
	if err != nil {
		t.Error(err)
	}
	images, err := s.host.engine.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		t.Error(err)
	}
	volumes, err := s.host.engine.VolumeList(ctx, volume.ListOptions{})
	if err != nil {
		t.Error(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	beside, err := os.ReadDir(s.serve.dir)
	if err != nil {
		t.Error(err)
	}
	f.containers, f.images, f.volumes = len(containers), len(images), len(volumes.Volumes)
	// Other engines on the machine have their own mounts.
	f.mounts, f.files = strings.Count(string(mounts), s.serve.dir), len(beside)
	temporary, err := os.ReadDir(s.temporary)
	if err != nil {
		t.Error(err)
	}
	f.temporary, f.children = len(temporary), s.children()
	gauges := s.gauges(t)
	f.goroutines, f.descriptors = gauges["go_goroutines"], gauges["process_open_fds"]
	f.memory = gauges["process_resident_memory_bytes"] >> 20
	return f
}

func processes(ids []string) []string {
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	var found []string
	for _, file := range groups {
		text, err := os.ReadFile(file) // the process may have ended
		for _, id := range ids {
			if err == nil && strings.Contains(string(text), id) {
				found = append(found, filepath.Dir(file)+" in "+id)
			}
		}
	}
	return found
}

// children counts serve's child processes, including zombies.
func (s *soak) children() int {
	n, parent := 0, strconv.Itoa(s.serve.pid())
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file) // the process may have ended
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if err == nil && len(fields) > 1 && fields[1] == parent {
			n++
		}
	}
	return n
}

func (s *soak) gauges(t *testing.T) map[string]int {
	t.Helper()
	r, err := http.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	found := map[string]int{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			found[name] = int(n)
		}
	}
	if found["go_goroutines"] == 0 {
		t.Fatal("serve does not tell its goroutines")
	}
	return found
}
