package client_test

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
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// fakeSSH implements the ssh features that tunnels use, on this machine: a master with -L, and -O forward. The test
// binary runs it when started as ssh.
func fakeSSH(args []string) int {
	var control, command, target string
	var forwards []string
	batch := false
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-S":
			i++
			control = args[i]
		case "-O":
			i++
			command = args[i]
		case "-L":
			i++
			forwards = append(forwards, args[i])
		case "-o":
			i++
			batch = batch || args[i] == "BatchMode=yes"
		default:
			target = args[i]
		}
	}
	switch {
	case strings.Contains(target, "proxied"): // a ProxyCommand that outlives ssh and keeps its stderr open
		proxy := exec.Command(args[0], "proxy")
		proxy.Stderr = os.Stderr
		if proxy.Start() != nil {
			return 255
		}
		time.Sleep(time.Hour)
	case target == "proxy":
		conn, err := net.Dial("unix", os.Getenv("CRISHIM_TEST_PROXY"))
		if err != nil {
			return 255
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1)) // until the test closes the connection
		return 0
	case strings.Contains(target, "denied"):
		fmt.Fprintln(os.Stderr, "joe@denied: Permission denied (publickey).")
		return 255
	case strings.Contains(target, "asks") && batch:
		fmt.Fprintln(os.Stderr, "Host key verification failed.")
		return 255
	case strings.Contains(target, "asleep"), strings.Contains(target, "asks"):
		time.Sleep(time.Hour)
	case command == "forward":
		conn, err := net.Dial("unix", control)
		if err != nil {
			return 255
		}
		fmt.Fprintln(conn, forwards[0])
		if answer, _ := bufio.NewReader(conn).ReadString('\n'); answer != "ok\n" {
			return 255
		}
		return 0
	}
	return sshMaster(control, forwards)
}

func sshMaster(control string, forwards []string) int {
	for _, f := range forwards {
		if err := sshForward(f); err != nil {
			return 255
		}
	}
	l, err := net.Listen("unix", control+".new")
	if err != nil || os.Rename(control+".new", control) != nil {
		return 255
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 255
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if sshForward(strings.TrimSpace(line)) == nil {
			_, _ = io.WriteString(conn, "ok\n")
		}
		_ = conn.Close()
	}
}

func sshForward(f string) error {
	local, remote, _ := strings.Cut(f, ":")
	l, err := net.Listen("unix", local)
	if err != nil {
		return err
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if remote == "/var/run/docker.sock" { // not the engine of this machine
				remote = os.Getenv("CRISHIM_TEST_ENGINE")
			}
			network := "tcp"
			if strings.HasPrefix(remote, "/") {
				network = "unix"
			}
			out, err := net.Dial(network, remote)
			if err != nil {
				fmt.Fprintf(os.Stderr, "channel 2: open failed: connect failed: %v\n", err)
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.(interface{ CloseWrite() error }).CloseWrite() }()
			go func() { _, _ = io.Copy(in, out); _ = in.(interface{ CloseWrite() error }).CloseWrite() }()
		}
	}()
	return nil
}

func installFakeSSH(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "ssh")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func leftovers(t *testing.T) map[string]bool {
	t.Helper()
	base, err := rundir.Base(nil)
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(base, "ssh-*"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range found {
		out[f] = true
	}
	return out
}

func TestSSHEndpoint(t *testing.T) {
	installFakeSSH(t)
	throughSSH(t, "joe@node:2222")
}

// throughSSH uses a runtime through ssh to a local address: calls, and a stream whose server listens on the remote
// loopback.
func throughSSH(t *testing.T, address string) {
	t.Helper()
	before := leftovers(t)
	s := stubcri.Start(t, stubcri.Options{})
	id := s.AddContainer(s.AddPod("default", "web"), "web")
	endpoint := "ssh://" + address + strings.TrimPrefix(s.Endpoint, "unix://")
	c, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: endpoint, ConnectTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if c.RuntimeEndpoint != endpoint || c.Version.GetRuntimeName() != "stubcri" {
		t.Errorf("got %s, %v", c.RuntimeEndpoint, c.Version)
	}
	if _, err := c.Container(t.Context(), "web", client.RunningAttempt); err != nil {
		t.Error(err)
	}
	for range 2 {
		streamThrough(t, c, id)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for f := range leftovers(t) {
		if !before[f] {
			t.Errorf("%s is left", f)
		}
	}
}

// streamThrough connects to an exec's streaming server, which listens only on the remote loopback.
func streamThrough(t *testing.T, c *client.Conn, id string) {
	t.Helper()
	r, err := c.Runtime.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"true"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	dialled := ""
	there := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.DialThere(ctx, network, address)
		if err == nil {
			dialled = conn.RemoteAddr().Network()
		}
		return conn, err
	}}}
	resp, err := there.Get(r.GetUrl())
	if err != nil {
		t.Fatalf("the stream's server cannot be reached: %v", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest || dialled != "unix" { // the server expects an upgrade to SPDY or WebSocket
		t.Errorf("got %s from the stream's server over %s", resp.Status, dialled)
	}
}

func TestSSHRefusals(t *testing.T) {
	installFakeSSH(t)
	before := leftovers(t)
	for name, tt := range map[string]struct {
		endpoint, want string
		timeout        time.Duration
	}{
		"no login":          {"ssh://joe@denied/run/x.sock", "Permission denied (publickey)", time.Minute},
		"no answer":         {"ssh://asleep/run/x.sock", "ssh did not log in", 300 * time.Millisecond},
		"no socket there":   {"ssh://node/nonexistent/x.sock", "no such file", time.Minute},
		"stopped by a user": {"ssh://asleep/run/x.sock", "interrupted", time.Minute},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if tt.want == "interrupted" {
			cancel()
		}
		c, err := client.Connect(ctx, client.Options{RuntimeEndpoint: tt.endpoint, ConnectTimeout: tt.timeout})
		cancel()
		if err == nil {
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "connect to "+tt.endpoint) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		tried, err := client.Discover(t.Context(), client.Options{
			RuntimeEndpoint: tt.endpoint, ConnectTimeout: 300 * time.Millisecond, Known: []client.Known{}, Engines: engines(),
		})
		if err == nil || len(tried) != 1 || tried[0].State == client.StateReady {
			t.Errorf("%s: probed %v, %v", name, tried, err)
		}
	}
	for f := range leftovers(t) {
		if !before[f] {
			t.Errorf("%s is left", f)
		}
	}
}

// For an engine's socket behind ssh, the hint has the right endpoint.
func TestSSHToAnEngine(t *testing.T) {
	installFakeSSH(t)
	path := stubcri.SocketPath(t)
	fakeEngine(t, path)
	hint, err := refusal(t, client.Options{RuntimeEndpoint: "ssh://joe@node" + path, ConnectTimeout: time.Minute})
	if !strings.Contains(err.Error(), "Docker engine") || !strings.Contains(hint, "-r docker+ssh://joe@node ") {
		t.Errorf("got %v, hint %q", err, hint)
	}
}

// TestSSHSweepsTunnels checks that only the sockets of a killed command's tunnel are removed.
func TestSSHSweepsTunnels(t *testing.T) {
	installFakeSSH(t)
	base, err := rundir.Base(nil)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(base, fmt.Sprintf("ssh-%016x", os.Getpid()))
	others := filepath.Join(base, fmt.Sprintf("ssh-1.2-%d", os.Getpid()))
	t.Cleanup(func() { os.RemoveAll(dead); os.RemoveAll(others) })
	if err := errors.Join(os.Mkdir(dead, 0o700), os.Mkdir(others, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dead + "/c", dead + "/c.0123456789abcdeF", dead + "/s", dead + "/f0", others + "/s"} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	throughSSH(t, "joe@node:2222")
	if _, err := os.Lstat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: got %v, want it gone", dead, err)
	}
	if _, err := os.Lstat(others + "/s"); err != nil {
		t.Error(err)
	}
}

func TestSSHFindsTheRuntime(t *testing.T) {
	installFakeSSH(t)
	runtimeOf(t, "joe@node:2222")
}

// runtimeOf discovers the runtime of a host: the first known socket that answers there.
func runtimeOf(t *testing.T, address string) {
	t.Helper()
	before := leftovers(t)
	s, second := stubcri.Start(t, stubcri.Options{}), stubcri.Start(t, stubcri.Options{Name: "second"})
	path := func(s *stubcri.Server) string { return strings.TrimPrefix(s.Endpoint, "unix://") }
	known := []client.Known{{Name: "none", Path: "/nonexistent/x.sock"}, {Name: "first", Path: path(s)}, {Name: "second", Path: path(second)}}
	c, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: "ssh://" + address, ImageEndpoint: "ssh://" + address, ConnectTimeout: time.Minute, Known: known, Batch: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := "ssh://" + address + path(s); c.RuntimeEndpoint != want || c.ImageEndpoint != want || c.Version.GetRuntimeName() != "stubcri" || c.Embedded {
		t.Errorf("got %s, %s and %v, want %s", c.RuntimeEndpoint, c.ImageEndpoint, c.Version, want)
	}
	id := s.AddContainer(s.AddPod("default", "web"), "web")
	streamThrough(t, c, id)
	if _, err := c.Image.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for f := range leftovers(t) {
		if !before[f] {
			t.Errorf("%s is left", f)
		}
	}
}

// A host that has only Docker is used as docker+ssh://.
func TestSSHFindsAnEngine(t *testing.T) {
	installFakeSSH(t)
	before := leftovers(t)
	t.Setenv("CRISHIM_TEST_ENGINE", stubcri.SocketPath(t))
	fakeEngine(t, os.Getenv("CRISHIM_TEST_ENGINE"))
	var engine client.Engine
	_, err := client.Connect(t.Context(), client.Options{
		RuntimeEndpoint: "ssh://joe@node", ConnectTimeout: time.Minute, Known: []client.Known{{Name: "none", Path: "/nonexistent/x.sock"}}, Batch: true,
		StartShim: func(_ context.Context, e client.Engine) (client.Shim, error) {
			engine = e
			return nil, errors.New("not here")
		},
	})
	if err == nil || engine.Host != "ssh://joe@node" || !engine.Batch {
		t.Errorf("got %v and engine %+v", err, engine)
	}
	for f := range leftovers(t) {
		if !before[f] {
			t.Errorf("%s is left", f)
		}
	}
}

func TestSSHFindsNothing(t *testing.T) {
	installFakeSSH(t)
	t.Setenv("CRISHIM_TEST_ENGINE", "/nonexistent/docker.sock")
	before := leftovers(t)
	for address, want := range map[string]string{
		"node":       "connect to ssh://node: there is no container runtime at the usual sockets",
		"joe@denied": "connect to ssh://joe@denied: joe@denied: Permission denied (publickey).",
		"joe@asks":   "connect to ssh://joe@asks: Host key verification failed.",
		"asleep":     "connect to ssh://asleep: ssh did not log in: context deadline exceeded",
	} {
		o := client.Options{RuntimeEndpoint: "ssh://" + address, ConnectTimeout: time.Minute, Known: []client.Known{{Name: "none", Path: "/nonexistent/x.sock"}}, Batch: true}
		if address == "asleep" {
			o.ConnectTimeout = 100 * time.Millisecond
		}
		if hint, err := refusal(t, o); err.Error() != want || address != "node" && !strings.Contains(hint, "`ssh ssh://"+address+" true`") || hint == "" {
			t.Errorf("%s: got %v, hint %q, want %q", address, err, hint, want)
		}
	}
	for f := range leftovers(t) {
		if !before[f] {
			t.Errorf("%s is left", f)
		}
	}
}

// If a host behind a ProxyCommand does not answer, the ProxyCommand ends with ssh and delays no caller.
func TestSSHProxyEnds(t *testing.T) {
	installFakeSSH(t)
	for _, batch := range []bool{true, false} {
		path := stubcri.SocketPath(t)
		t.Setenv("CRISHIM_TEST_PROXY", path)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		proxy := make(chan net.Conn, 1)
		go func() {
			if conn, err := l.Accept(); err == nil {
				proxy <- conn
			}
			cancel()
		}()
		if _, err := client.Connect(ctx, client.Options{RuntimeEndpoint: "ssh://proxied", ConnectTimeout: time.Minute, Batch: batch}); err == nil {
			t.Error("connected")
		}
		conn := <-proxy
		if batch { // otherwise the terminal ends the process group
			_, _ = conn.Read(make([]byte, 1))
		}
		_, _ = conn.Close(), l.Close()
	}
}

func TestSSHProgramMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := refusal(t, client.Options{RuntimeEndpoint: "ssh://node/x"})
	if !strings.Contains(err.Error(), "the ssh program is not installed") {
		t.Errorf("got %v", err)
	}
}

// TestRealSSH uses a real sshd on loopback with keys of its own.
func TestRealSSH(t *testing.T) {
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		if _, serr := os.Stat("/usr/sbin/sshd"); serr != nil {
			test.Missing(t, "no sshd")
		}
		sshd = "/usr/sbin/sshd"
	}
	real, err := exec.LookPath("ssh")
	if err != nil {
		test.Missing(t, "no ssh")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	config := fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n", port, dir, dir)
	if err := os.WriteFile(filepath.Join(dir, "sshd_config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// sshd needs this directory; its service unit normally creates it.
	if err := os.Mkdir("/run/sshd", 0o755); err == nil {
		t.Cleanup(func() { _ = os.Remove("/run/sshd") })
	}
	var log bytes.Buffer
	cmd := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(dir, "sshd_config"))
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	// A wrapper script passes the key to ssh, so the user's config stays untouched.
	script := fmt.Sprintf("#!/bin/sh\nexec %s -F none -i %s/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \"$@\"\n", real, dir)
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		select {
		case <-ended:
			test.Missing(t, "sshd does not start here: %s", log.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("sshd does not listen")
		}
	}
	throughSSH(t, me.Username+"@"+address)
	runtimeOf(t, me.Username+"@"+address)
}
