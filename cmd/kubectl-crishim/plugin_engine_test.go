package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/internal/test/kubeapi"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestMain acts as the plugin when kubectl runs it, and as the relay between a node and its runtime.
func TestMain(m *testing.M) {
	env := cli.SystemProcess("v0.0.0-test") // sets the process-wide logger before anything else runs
	switch filepath.Base(os.Args[0]) {
	case "kubectl-crishim":
		os.Exit(runPlugin(context.Background(), os.Args[1:], env))
	case "relay":
		fmt.Fprintln(os.Stderr, "relay:", relay(os.Args[1], os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// relay forwards a socket to another in a process that the test can stop.
func relay(at, to string) error {
	listener, err := net.Listen("unix", at)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			served, err := net.Dial("unix", to)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(served, conn)
				_ = served.Close()
			}()
			_, _ = io.Copy(conn, served)
		}()
	}
}

// startRelay starts a relay to a runtime. The relay ends after cleanups that are registered later.
func startRelay(t *testing.T, endpoint string) (relayed string, process *os.Process) {
	t.Helper()
	socket := filepath.Join(test.SocketDir(t), "relay.sock")
	cmd := exec.Command(linkTo(t, "relay"), socket, strings.TrimPrefix(endpoint, "unix://"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	test.Until(t, "the relay", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	return "unix://" + socket, cmd.Process
}

// testCluster is kubectl and a cluster: three nodes with the label pool=web on a real containerd, node-04 on Docker,
// node-05 with a runtime that can be stopped, and node-06 with an old runtime.
type testCluster struct {
	*kubeapi.Server
	t       *testing.T
	env     []string
	image   string      // contains crishim
	web     string      // pod on node-02
	runtime *os.Process // runtime of node-05
	old     *stubcri.Server
}

func withCluster(t *testing.T) *testCluster {
	t.Helper()
	endpoint := enginetest.Containerd(t)
	if _, err := exec.LookPath("kubectl"); err != nil {
		test.Missing(t, "no kubectl: apt-get install kubernetes-client")
	}
	enginetest.Require(t)
	engine := cmp.Or(strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"), "/var/run/docker.sock")
	image := loadImage(t, endpoint, "docker://"+engine)
	run := filepath.Dir(strings.TrimPrefix(endpoint, "unix://"))
	c := &testCluster{t: t, image: image, web: "web-" + rand.String(5)}
	nodes := kubeapi.Nodes(6, endpoint)
	for i := range nodes {
		nodes[i].HostPaths = map[string]string{"/run/containerd": run}
		if i < 3 {
			nodes[i].Labels = map[string]string{"pool": "web"}
		}
	}
	onDocker, stopped, old := &nodes[3], &nodes[4], &nodes[5]
	onDocker.Endpoint, onDocker.HostPaths["/var/run/docker.sock"] = "docker://"+engine, engine
	stopped.Endpoint, c.runtime = startRelay(t, endpoint)
	options := stubcri.Profiles()["dockershim 1.23"] // has only CRI v1alpha2
	old.HostPaths[run] = test.SocketDir(t)           // for pods: the kubelet uses another runtime
	options.Socket = filepath.Join(old.HostPaths[run], filepath.Base(endpoint))
	c.old = stubcri.Start(t, options)
	c.Server = kubeapi.Start(t, kubeapi.Options{Nodes: nodes})
	bin := filepath.Dir(linkTo(t, "kubectl-crishim"))
	c.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig, "HOME="+bin, "CRISHIM_IMAGE="+image)
	c.apply(c.web, "node-02")
	return c
}

// linkTo links this program under a name that selects another role in TestMain.
func linkTo(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// loadImage loads an image that contains only crishim.
func loadImage(t *testing.T, endpoints ...string) string {
	t.Helper()
	program, err := os.ReadFile("../../bin/crishim")
	if err != nil {
		test.Missing(t, "no bin/crishim: make build first")
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, h := range []tar.Header{{Typeflag: tar.TypeReg, Name: "crishim", Mode: 0o755, Size: int64(len(program))}, {Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o777}} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write(program); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}}) // containerd 2 unpacks no image without these
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("example.com/crishim:" + rand.String(8))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		t.Fatal(err)
	}
	crishim := func(endpoint string, args ...string) {
		env := cli.SystemProcess("v0.0.0-test")
		env.Out, env.Err, env.ErrTerminal = t.Output(), t.Output(), false
		if code := commands.Main(context.Background(), append([]string{"crishim", "-r", endpoint}, args...), env); code != 0 {
			t.Errorf("crishim %q: exit %d", args, code)
		}
	}
	for _, endpoint := range endpoints {
		crishim(endpoint, "load", "-q", "-i", file, "--as", tag.Name())
		t.Cleanup(func() { crishim(endpoint, "rmi", tag.Name()) })
	}
	return tag.Name()
}

// apply creates a pod and waits until it runs.
func (c *testCluster) apply(name, node string) {
	c.t.Helper()
	manifest := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "namespace": "default"}, "spec": {"nodeName": %q,
		"hostNetwork": true, "terminationGracePeriodSeconds": 0, "containers": [{"name": "crishim", "image": "busybox:crishim", "imagePullPolicy": "Never",
		"command": ["sh", "-c", "echo begun on $0; exec sleep 1000", %[2]q]}]}}`, name, node)
	create := c.command("create", "-f", "-")
	create.Stdin = strings.NewReader(manifest)
	if out, err := create.CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	test.Until(c.t, name+" to run", func() bool {
		for _, pod := range c.Pods() {
			if pod.Name == name && isRunning(pod) {
				return true
			}
		}
		return false
	})
}

func (c *testCluster) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), "kubectl", args...)
	cmd.Env = c.env
	return cmd
}

// run runs kubectl crishim and checks its exit status and parts of its output.
func (c *testCluster) run(line string, code int, wants ...string) string {
	c.t.Helper()
	out, err := c.command(append([]string{"crishim"}, strings.Fields(line)...)...).CombinedOutput()
	got := 0
	if err != nil {
		got = c.code(err)
	}
	for _, want := range wants {
		if !strings.Contains(string(out), want) {
			c.t.Errorf("kubectl crishim %s: no %q in\n%s", line, want, out)
		}
	}
	if got != code {
		c.t.Errorf("kubectl crishim %s: exit %d, want %d\n%s", line, got, code, out)
	}
	return string(out)
}

func (c *testCluster) code(err error) int {
	c.t.Helper()
	exit, ok := err.(*exec.ExitError) //nolint:errorlint // os/exec does not wrap it
	if !ok {
		c.t.Fatal(err)
	}
	return exit.ExitCode()
}

// left waits until all pods of the plugin are gone.
func (c *testCluster) left() {
	c.t.Helper()
	test.Until(c.t, "the end of all pods of the plugin", func() bool { return len(c.ours()) == 0 })
}

func (c *testCluster) ours() (names []string) {
	for _, pod := range c.Pods() {
		if pod.Labels[labelOwner] != "" {
			names = append(names, pod.Name)
		}
	}
	return names
}

func (c *testCluster) requests(prefix string) (n int) {
	for _, r := range c.Requests() {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// begin starts a long-running command line and waits until it runs on its node.
func (c *testCluster) begin(line string) (cmd *exec.Cmd, errs *test.Buffer) {
	c.t.Helper()
	before := c.requests("create pods/exec")
	cmd, errs = c.command(append([]string{"crishim"}, strings.Fields(line)...)...), &test.Buffer{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	test.Until(c.t, "an exec", func() bool {
		return c.requests("create pods/exec") > before || cmd.ProcessState != nil
	})
	return cmd, errs
}

func TestPluginOnEngine(t *testing.T) {
	c := withCluster(t)
	t.Run("runs", c.runs)
	t.Run("stops", c.stops)
	t.Run("old", c.hasAnOldRuntime)
	t.Run("fails", c.fails)
	t.Run("older", c.older)
}

func (c *testCluster) runs(t *testing.T) {
	c.t = t
	c.run("--node node-01 -- version -o json", 0, `"runtimeName": "containerd"`)
	c.run("--all -- version -o jsonl", 0, `"node":"node-03"`, `"node":"node-05"`, `"runtimeName":"docker"`)
	c.run("--node node-04 -- ps", 0, "crishim-node-04-") // the pod itself, through the dockershim in it
	c.run("pod/"+c.web+" -- logs "+c.web, 0, "begun on node-02\n")
	c.left()

	// A pod is kept for the next command line.
	c.run("--keep --yes --nodes pool=web -- exec "+c.web+" echo here", 0, "node-01 | here", "node-02 | here", "node-03 | here")
	kept := c.ours()
	c.run("--keep --nodes pool=web -- version", 0, "NODE", "node-01   containerd", "node-02   containerd", "node-03   containerd")
	c.run("--keep pod/"+c.web+" -- inspect -o name "+c.web, 0, c.web)
	c.run("--keep --node node-01 -- doctor", 0, "cannot be seen from here") // checks that are impossible in the pod are not failures
	c.run("--keep --node node-01 -- nosuch", 2, "unknown command")
	c.run("--keep --node node-01 -- inspect nosuch", 1, `crishim: there is no container "nosuch"`)
	c.run("--keep --nodes pool=web -- stop "+c.web, 1, "node-01 | Would stop", "nothing is done yet: this is on 3 nodes")

	// Standard streams and exit status are those of the remote command.
	sh := c.command("crishim", "--keep", "pod/"+c.web, "--", "exec", "-i", c.web, "sh", "-c", "cat; echo no >&2; exit 7")
	var out, errs bytes.Buffer
	sh.Stdin, sh.Stdout, sh.Stderr = strings.NewReader(strings.Repeat("x", 100_000)), &out, &errs
	if err := sh.Run(); err == nil || c.code(err) != 7 || out.Len() != 100_000 || errs.String() != "no\n" {
		t.Errorf("got %v, %d bytes, %q", err, out.Len(), errs.String())
	}
	// The terminal's size arrives shortly after the command's start.
	shown, err := pty.StartWithSize(c.command("crishim", "--keep", "--node", "node-02", "--", "exec", "-it", c.web, "sh", "-c", "until stty size | grep 123; do sleep 0.1; done"), &pty.Winsize{Rows: 41, Cols: 123})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(shown) // returns an error at the end, as terminals do
	if !strings.Contains(string(text), "41 123") {
		t.Errorf("got %q", text)
	}
	shown.Close()

	// A command in the pod ends with the local command.
	for signal, want := range map[os.Signal]int{os.Interrupt: 0, os.Kill: -1} {
		follow, shown := c.command("crishim", "--keep", "pod/"+c.web, "--", "logs", "-f", c.web), &test.Buffer{}
		follow.Stdout, follow.Stderr = shown, shown
		if err := follow.Start(); err != nil {
			t.Fatal(err)
		}
		test.Until(t, "a log", func() bool { return strings.Contains(shown.String(), "begun on node-02") })
		if err := follow.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if _ = follow.Wait(); follow.ProcessState.ExitCode() != want {
			t.Errorf("logs -f, %s: exit %d, %s", signal, follow.ProcessState.ExitCode(), shown)
		}
	}
	test.Until(t, "the end of what runs in pods", func() bool { return len(inPods()) == 0 })

	if got := c.ours(); len(kept) != 3 || !slices.Equal(kept, got) {
		t.Errorf("kept %q, then %q", kept, got)
	}
	c.run("--nodes pool=web -- ps", 0)
	c.left()

	// The DaemonSet has a pod on each node, which is used.
	manifests, err := c.command("kustomize", "../../packaging/kubernetes/base").Output()
	if err != nil {
		t.Fatal(err)
	}
	daemonSet := c.command("apply", "-f", "-")
	daemonSet.Stdin = strings.NewReader(strings.ReplaceAll(string(manifests), defaultImage(released(t)), c.image))
	if out, err := daemonSet.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := c.command("-n", kube.ClusterNamespace, "rollout", "status", "daemonset/crishim", "--timeout", "2m").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before := c.requests("create pods ")
	c.run("--nodes pool=web -- version", 0, "node-01   containerd", "node-03   containerd")
	if made := c.requests("create pods ") - before; made != 0 {
		t.Errorf("%d pods were made next to those of the DaemonSet", made)
	}
	c.run("pod/"+c.web+" -n default -- stop -t 1 "+c.web, 0) // lacks the rights
	c.left()
	if out, err := c.command("delete", "-k", "../../packaging/kubernetes/base").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A hanging node does not delay others and fails at its deadline.
func (c *testCluster) stops(t *testing.T) {
	c.t = t
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := c.runtime.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	defer signal(syscall.SIGCONT)
	others := []string{"node-01   containerd", "node-02   containerd", "node-03   containerd", "node-04   docker", "node-06   docker"}

	// The node hangs during a command line, which still reacts to a signal.
	watch, shown := c.command("crishim", "--keep", "--node", "node-05", "--", "stats", "--watch", c.web), &test.Buffer{}
	watch.Stdout, watch.Stderr = shown, shown
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "a result", func() bool { return strings.Contains(shown.String(), c.web) })
	signal(syscall.SIGSTOP)
	if err := watch.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err == nil || c.code(err) != 143 {
		t.Errorf("got %v, %s", err, shown)
	}
	// The node hangs before a command starts in a kept pod, and before a pod exists.
	c.run("--node node-05 --node-timeout 2s -- version", 1, "crishim: node node-05: no answer within 2s\n")
	c.run("--all --node-timeout 15s -- version", 1, append(others, "crishim: node-05: no answer within 15s: its pod does not start: the kubelet has not begun with it\n")...)
	signal(syscall.SIGCONT)
	c.left()
}

// A runtime without CRI v1 is used with v1alpha2. Errors about missing features name the node.
func (c *testCluster) hasAnOldRuntime(t *testing.T) {
	c.t = t
	c.old.AddContainer(c.old.AddPod("default", "older"), "main")
	c.run("--keep --all -- version", 0, "node-01   containerd", "node-06   docker       20.10.24")
	c.run("--keep --all -- ps --columns node,name --name main", 0, "node-06   main")
	for _, call := range c.old.Calls() {
		if call.API != "v1alpha2" {
			t.Errorf("%s was called by %s", call.Method, call.API)
		}
	}
	out := c.run("--all -- runtime-config", 1, "CGROUP DRIVER", "node-04   ", "crishim: node-06: the runtime at node node-06 does not implement this call ")
	if strings.Count(out, "node-06") != 2 {
		t.Error(out)
	}
	c.left()
}

func inPods() (lines []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if line := strings.ReplaceAll(string(text), "\x00", " "); strings.HasPrefix(line, kube.ClusterProgram+" ") && !strings.Contains(line, kube.IdleWord) {
			lines = append(lines, line)
		}
	}
	return lines
}

// isGone reports whether the only error is that the node's kubelet is gone, before or during a call.
func isGone(errs, node string) bool {
	return strings.Count(errs, "crishim: ") == 1 && strings.Contains(errs, node) && strings.Contains(errs, ": its kubelet is gone: ")
}

func (c *testCluster) fails(t *testing.T) {
	c.t = t
	c.run("--node node-9 -- ps", 1, "crishim: node node-9: there is no such node\nhint: did you mean node-0")
	c.run("pod/nosuch -n default -- ps", 1, `crishim: there is no pod "nosuch" in namespace default`)
	c.run("--image nosuch.invalid/x:1 --node node-01 -- ps", 1, "crishim: node node-01: its pod does not start: cannot pull the image nosuch.invalid/x:1: ErrImagePull: ")

	cmd, errs := c.begin("--node node-01 -- events")
	c.Vanish("node-01")
	if err := cmd.Wait(); err == nil || c.code(err) != 1 || !isGone(errs.String(), "node node-01") {
		t.Errorf("got %v, %s", err, errs)
	}
	c.SetState("node-01", kubeapi.Ready)
	c.left()

	// A signal ends a waiting command.
	cmd, errs = c.begin("--node node-03 -- wait --for exited " + c.web)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || c.code(err) != 143 {
		t.Errorf("got %v, %s", err, errs)
	}
	c.left()

	// If one of several nodes disappears, it fails and the others continue.
	before := c.requests("create pods/exec")
	cmd, errs = c.begin("--nodes pool=web --yes -- exec " + c.web + " sleep 2")
	test.Until(t, "three sessions", func() bool { return c.requests("create pods/exec") == before+6 })
	c.Vanish("node-03")
	if err := cmd.Wait(); err == nil || c.code(err) != 1 || !strings.HasPrefix(errs.String(), "crishim: node-03: ") || strings.Count(errs.String(), "crishim: ") != 1 {
		t.Errorf("got %v, %s", err, errs)
	}
	c.SetState("node-03", kubeapi.Ready)
	c.left()

	// A signal ends the command on all nodes.
	before = c.requests("create pods/exec")
	cmd, errs = c.begin("--nodes pool=web --yes -- exec " + c.web + " sleep 100")
	test.Until(t, "three sessions", func() bool { return c.requests("create pods/exec") == before+6 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || c.code(err) != 130 {
		t.Errorf("got %v, %s", err, errs)
	}
	c.left()

	// A node that does not answer an exec fails at its deadline.
	c.run("--keep --node node-02 -- version", 0)
	c.SetState("node-02", kubeapi.Hanging)
	c.run("--keep --node node-02 --node-timeout 1s -- version", 1, "crishim: node node-02: no answer within 1s")
	cmd, errs = c.begin("--keep --node node-02 -- version")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || c.code(err) != 130 || errs.String() != "crishim: interrupted\n" {
		t.Errorf("got %v, %s", err, errs)
	}
	c.SetState("node-02", kubeapi.Ready)
	c.run("--node node-02 -- version", 0)
	c.left()

	// A killed command removes nothing. The next one does.
	cmd, _ = c.begin("--node node-03 -- events")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(c.ours()) != 1 {
		t.Errorf("pods are %q", c.ours())
	}
	c.run("--node node-02 -- version", 0)
	c.left()
}

// SPDY is used if WebSockets are not supported, as with older servers and some proxies.
func (c *testCluster) older(t *testing.T) {
	c.t = t
	defer c.Forbid("get", "pods/exec")()
	c.run("--node node-01 -- inspect nosuch", 1, `crishim: there is no container "nosuch"`)
	// SPDY does not report a lost connection.
	cmd, errs := c.begin("--node node-02 -- events")
	c.Vanish("node-02")
	if err := cmd.Wait(); err == nil || c.code(err) != 1 || !isGone(errs.String(), "node node-02") {
		t.Errorf("got %v, %s", err, errs)
	}
	c.SetState("node-02", kubeapi.Ready)
	defer c.Forbid("create", "pods/exec")()
	c.run("--node node-01 -- version", 1, "not allowed to create pods/exec")
	c.left()
}

func TestManyNodesOnEngine(t *testing.T) {
	if os.Getenv("CRISHIM_TEST_LONG") == "" {
		t.Skip("long: CRISHIM_TEST_LONG=1 runs it")
	}
	endpoint := enginetest.Containerd(t)
	if _, err := os.Stat("../../bin/kubectl-crishim"); err != nil {
		test.Missing(t, "no bin/kubectl-crishim: make plugin first")
	}
	image := loadImage(t, endpoint)
	nodes := kubeapi.Nodes(50, endpoint)
	for i := range nodes {
		nodes[i].HostPaths = map[string]string{"/run/containerd/containerd.sock": strings.TrimPrefix(endpoint, "unix://")}
	}
	var mu sync.Mutex
	var slowest time.Duration // from the creation of a pod to its removal
	var s *kubeapi.Server
	s = kubeapi.Start(t, kubeapi.Options{Nodes: nodes, Audit: func(line string) {
		name, removed := strings.CutPrefix(line, "delete pods default/")
		if !removed {
			return
		}
		name, _, _ = strings.Cut(name, ":")
		for _, pod := range s.Pods() {
			if pod.Name == name {
				mu.Lock()
				slowest = max(slowest, time.Since(pod.CreationTimestamp.Time))
				mu.Unlock()
			}
		}
	}})
	// Run the real program, because the test binary uses more memory.
	plugin := exec.CommandContext(t.Context(), "../../bin/kubectl-crishim", "--kubeconfig", s.Kubeconfig, "--image", image, "--all", "--node-timeout", "5m", "--", "ps", "--name", "crishim", "-q")
	var out, errs test.Buffer
	plugin.Stdout, plugin.Stderr = &out, &errs
	began := time.Now()
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	memory := highWater(plugin.Process.Pid)
	err := plugin.Wait()
	took := time.Since(began)
	if err != nil || strings.Count(out.String(), "\n") < len(nodes) {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	mu.Lock()
	defer mu.Unlock()
	kib := <-memory
	t.Logf("%s, the slowest node %s, %d MiB", took, slowest, kib>>10)
	if took > 2*slowest+2*time.Second {
		t.Errorf("all nodes took %s, the slowest %s", took, slowest)
	}
	if kib == 0 || kib > 100<<10 {
		t.Errorf("it took %d KiB of memory", kib)
	}
	test.Until(t, "the end of all pods", func() bool { return len(s.Pods()) == 0 })
}

// highWater returns the peak resident memory of a process in KiB after the process has ended. The value from wait4
// would include memory of the parent.
func highWater(pid int) <-chan int {
	result := make(chan int, 1)
	go func() {
		most := 0
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, after, found := strings.Cut(string(status), "VmHWM:")
			if err != nil || !found { // a zombie has no memory
				result <- most
				return
			}
			_, _ = fmt.Sscan(after, &most)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return result
}
