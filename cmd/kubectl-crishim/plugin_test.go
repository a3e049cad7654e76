package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/kubeapi"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// stubCluster is a cluster whose nodes use a stub runtime. It runs no commands, so it is for failures before the exec.
type stubCluster struct {
	*kubeapi.Server
	t    *testing.T
	stub *stubcri.Server
}

func withStub(t *testing.T) *stubCluster {
	t.Helper()
	stub := stubcri.Start(t, stubcri.Options{})
	stub.AddImage("example.com/crishim:1")
	nodes := kubeapi.Nodes(3, stub.Endpoint)
	for i := range nodes {
		nodes[i].HostPaths = map[string]string{strings.TrimPrefix(stub.Endpoint, "unix://"): strings.TrimPrefix(stub.Endpoint, "unix://")}
	}
	return &stubCluster{kubeapi.Start(t, kubeapi.Options{Nodes: nodes}), t, stub}
}

// run runs the plugin and returns its exit status and error output.
func (c *stubCluster) run(ctx context.Context, line string) (status int, errs string) {
	c.t.Helper()
	var out, err test.Buffer
	env := cli.SystemProcess("v0.0.0-test")
	env.Out, env.Err, env.OutTerminal, env.ErrTerminal = &out, &err, false, false
	env.LookupEnv = func(string) (string, bool) { return "", false }
	status = runPlugin(ctx, slices.Concat([]string{"--kubeconfig", c.Kubeconfig, "--image", "example.com/crishim:1"}, strings.Fields(line)), env)
	return status, err.String()
}

// left waits until neither the API server nor the runtime has a pod.
func (c *stubCluster) left() {
	c.t.Helper()
	test.Until(c.t, "the end of all pods", func() bool {
		pods, containers := c.stub.Left()
		return len(c.Pods())+pods+containers == 0
	})
}

func TestNotAllowed(t *testing.T) {
	t.Parallel()
	for right, want := range map[string]string{
		"list nodes":       `crishim: not allowed to list nodes: nodes is forbidden: User "tester" cannot list resource "nodes" in API group "" at the cluster scope`,
		"get nodes":        `crishim: node-01: not allowed to get nodes: nodes "node-01" is forbidden: `,
		"list pods":        "crishim: not allowed to list pods in namespace default: pods is forbidden: ",
		"create pods":      "crishim: node-01: not allowed to create pods in namespace default: pods is forbidden: ",
		"watch pods":       "crishim: node-01: not allowed to watch pods in namespace default: pods is forbidden: ",
		"create pods/exec": "crishim: node-01: not allowed to create pods/exec in namespace default: pods \"crishim-node-01-",
	} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			c := withStub(t)
			verb, resource, _ := strings.Cut(right, " ")
			c.Forbid(verb, resource)
			status, errs := c.run(t.Context(), "--all -- version")
			if status != 1 || !strings.HasPrefix(errs, want) || !strings.Contains(errs, "\nhint: docs/kubernetes.md lists the rights") {
				t.Errorf("exit %d, %s\nwant %s", status, errs, want)
			}
			c.left()
		})
	}
	t.Run("delete pods", func(t *testing.T) {
		t.Parallel()
		c := withStub(t)
		c.stub.Fail("Exec", errors.New("no"))
		c.Forbid("delete", "pods")
		if _, errs := c.run(t.Context(), "--node node-01 -- version"); !strings.Contains(errs, "stays, until it ends by itself: not allowed to delete pods: ") {
			t.Error(errs)
		}
	})
}

func TestPodsThatDoNotStart(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	c.stub.Fail("PullImage", errors.New("no such repository"))
	c.SetState("node-02", kubeapi.Stuck)
	c.SetState("node-03", kubeapi.NotReady)
	status, errs := c.run(t.Context(), "--all --image example.com/none:1 --node-timeout 3s -- version")
	if status != 1 {
		t.Errorf("exit %d", status)
	}
	lines := strings.Split(errs, "\n")
	for i, want := range []string{
		"crishim: node-01: its pod does not start: cannot pull the image example.com/none:1: ErrImagePull: ",
		"crishim: node-02: no answer within 3s: its pod does not start: FailedCreatePodSandBox: ",
		"crishim: node-03: its kubelet is gone: NodeStatusUnknown: ",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) || strings.Count(lines[i], "ErrImagePull") > 1 {
			t.Errorf("line %d of\n%s\nis not %s", i, errs, want)
		}
	}
	c.left()
}

// An interrupt before pods run or before an exec is answered leaves nothing behind.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"RunPodSandbox", "Exec"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			c := withStub(t)
			var reached sync.WaitGroup
			reached.Add(3)
			goOn := make(chan struct{})
			c.stub.Before(at, func(ctx context.Context) {
				reached.Done()
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				reached.Wait()
				cancel()
			}()
			if status, errs := c.run(ctx, "--all -- version"); status != 1 || strings.Count(errs, "\n") > 1 {
				t.Errorf("exit %d, %s", status, errs)
			}
			close(goOn)
			c.left()
		})
	}
}

func (c *stubCluster) made() (n int) {
	for _, r := range c.Requests() {
		if strings.HasPrefix(r, "create pods ") {
			n++
		}
	}
	return n
}

// plugin returns a connected plugin and its warnings.
func (c *stubCluster) plugin() (*plugin, *test.Buffer) {
	c.t.Helper()
	warnings := &test.Buffer{}
	o := &options{}
	o.flags()
	o.config.KubeConfig = &c.Kubeconfig
	p := &plugin{options: o, process: cli.SystemProcess("v0.0.0-test")}
	p.process.Err = warnings
	if err := p.connect(); err != nil {
		c.t.Fatal(err)
	}
	return p, warnings
}

// create creates a pod on node-01 without special permissions.
func (c *stubCluster) create(p *plugin, name string, labels map[string]string, change func(*corev1.PodSpec)) {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{
		NodeName: "node-01", HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: kube.ClusterContainer, Image: "example.com/crishim:1"}},
	}}
	change(&pod.Spec)
	if _, err := p.cluster.api.Pods("default").Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// A pod with crishim's labels, but without the runtime or the node's namespaces, is not used, because unprivileged
// users can create it.
func TestForgedPods(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	p, _ := c.plugin()
	owner, _ := identity()
	for name, labels := range map[string]map[string]string{
		"standing": {kube.LabelApp: kube.LabelAppValue, kube.LabelRights: kube.RightsHost},
		"kept":     {kube.LabelApp: kube.LabelAppValue, kube.LabelRights: kube.RightsHost, kube.LabelManagedBy: kube.ManagedByKubectl, labelOwner: owner, labelKept: "true"},
	} {
		c.create(p, name, labels, func(*corev1.PodSpec) {})
		c.create(p, name+"-logs", labels, func(spec *corev1.PodSpec) {
			spec.Volumes = []corev1.Volume{{Name: volumeRuntime, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}}}}
		})
	}
	test.Until(t, "the pods to run", func() bool {
		return !slices.ContainsFunc(c.Pods(), func(pod *corev1.Pod) bool { return !isRunning(pod) })
	})
	c.run(t.Context(), "--keep --node node-01 -- version")
	if got := c.made(); got != 5 {
		t.Errorf("%d pods were made, want one and the four that are forged", got)
	}
}

// A named pod may not be scheduled yet.
func TestPodWithoutANode(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	p, _ := c.plugin()
	c.create(p, "waits", nil, func(spec *corev1.PodSpec) { spec.NodeName, spec.NodeSelector = "", map[string]string{"disk": "tape"} })
	const want = "crishim: pod default/waits is on no node: Unschedulable: 0/3 nodes are available: none is ready and matches the node selector.\n"
	if status, errs := c.run(t.Context(), "pod/waits -- ps"); status != 1 || errs != want {
		t.Errorf("exit %d, %s", status, errs)
	}
	c.Forbid("get", "pods")
	const forbidden = `crishim: not allowed to get pods in namespace default: pods "waits" is forbidden: User "tester" cannot get resource "pods" in API group "" in the namespace "default"`
	if status, errs := c.run(t.Context(), "pod/waits -- ps"); status != 1 || !strings.HasPrefix(errs, forbidden) {
		t.Errorf("exit %d, %s", status, errs)
	}
}

// Leftovers of other users are only removed after their deadline. It does not matter if this is forbidden.
func TestLeftoversOfOthers(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	c.stub.AfterStart(kube.ClusterContainer, func(id string) { c.stub.Exit(id, 1) })
	p, warnings := c.plugin()
	labels := map[string]string{kube.LabelApp: kube.LabelAppValue, kube.LabelManagedBy: kube.ManagedByKubectl, labelOwner: "another"}
	for name, life := range map[string]int64{"ended": 3600, "expired": 1} {
		c.create(p, name, labels, func(spec *corev1.PodSpec) { spec.ActiveDeadlineSeconds = &life })
	}
	names := func() (names []string) {
		for _, pod := range c.Pods() {
			names = append(names, pod.Name)
		}
		return names
	}
	test.Until(t, "the ends of the pods", func() bool {
		return !slices.ContainsFunc(c.Pods(), func(pod *corev1.Pod) bool { return over(pod) == "" || pod.Name == "expired" && !hasExpired(pod) })
	})
	allow := c.Forbid("delete", "pods")
	for range 2 {
		if err := p.openPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.end()
		allow()
	}
	test.Until(t, "the removal", func() bool { return len(names()) == 1 })
	if got := names(); got[0] != "ended" || warnings.String() != "" {
		t.Errorf("left are %q; %s", got, warnings)
	}
}

// A command line without --keep removes all kept pods, whatever their rights.
func TestKeptPodsAreRemoved(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	c.run(t.Context(), "--keep --node node-01 -- version")
	c.run(t.Context(), "--keep --node node-01 -- exec web true")
	c.run(t.Context(), "--keep --node node-01 -- exec web true")
	if got := c.made(); got != 2 {
		t.Errorf("%d pods were made, want one that reads and one that changes things", got)
	}
	c.run(t.Context(), "--node node-01 -- version")
	c.left()
}

// On a terminal too, Ctrl-C interrupts a request that the kubelet does not answer.
func TestInterruptedOnATerminal(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	c.run(t.Context(), "--keep --node node-01 -- version")
	c.SetState("node-01", kubeapi.Hanging)
	before := len(c.Requests())
	cmd := exec.CommandContext(t.Context(), linkTo(t, "kubectl-crishim"), "--kubeconfig", c.Kubeconfig, "--image", "example.com/crishim:1", "--keep", "--node", "node-01", "--", "ps")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	test.Until(t, "an exec", func() bool {
		return slices.ContainsFunc(c.Requests()[before:], func(r string) bool { return strings.HasPrefix(r, "create pods/exec ") })
	})
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(terminal) // returns an error at the end, as terminals do
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 || string(text) != "^Ccrishim: interrupted\r\n" {
		t.Errorf("got %v, %q", err, text)
	}
	c.SetState("node-01", kubeapi.Ready)
}

// Interactive commands such as top open a node repeatedly. Each first connection is used once or closed with the node.
func TestFirstConnections(t *testing.T) {
	t.Parallel()
	o := &opened{release: func() {}}
	p := &plugin{opened: map[string][]*opened{"node-01": {o}}}
	used, _ := net.Pipe()
	unused, far := net.Pipe()
	takeUsed, takeUnused := p.hold(o, used), p.hold(o, unused)
	if first, second := takeUsed(), takeUsed(); first != used || second != nil {
		t.Errorf("got %v, then %v", first, second)
	}
	p.close("node-01")
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that nobody used is open: %v", err)
	}
	if err := used.SetDeadline(time.Now()); err != nil {
		t.Errorf("a connection in use was closed: %v", err)
	}
	if got := takeUnused(); got != nil {
		t.Errorf("got %v after the end", got)
	}
}

// Usage errors are reported before any request.
func TestUsage(t *testing.T) {
	t.Parallel()
	c := &stubCluster{Server: &kubeapi.Server{Kubeconfig: "/nonexistent"}, t: t}
	for line, want := range map[string]string{
		"ps":                                `"ps" stands in front of --`,
		"-- ps":                             "name where to run: one of --node NODE, pod/NAME, --nodes SELECTOR, --all",
		"--all --node a -- ps":              "name where to run: ",
		"--node= -- ps":                     "--node and --nodes must not be empty",
		"--node a":                          "there is no command line",
		"svc/web -- ps":                     `"svc/web": one pod is named, as pod/NAME`,
		"--nosuch -- ps":                    "unknown flag: --nosuch",
		"--node a --node-timeout=-1s -- ps": `invalid --node-timeout "-1s": must not be negative`,
		"--all --node-timeout=-1s -- ps":    `invalid --node-timeout "-1s": must not be negative`,
		"--all --parallel 0 -- ps":          `invalid --parallel "0": must be 1 or more`,
		"--all -- events":                   "events does not run on several nodes\nhint: `kubectl crishim --node NODE -- events` runs it on one",
		"--all -- ps --watch":               "ps --watch does not run on several nodes",
		"--all -- ps --columns nosuch":      "unknown column",
		"--all -- --hosts a ps":             "several endpoints do not go with nodes of a cluster",
	} {
		if status, errs := c.run(t.Context(), line); status != 2 || !strings.HasPrefix(errs, "crishim: "+want) {
			t.Errorf("%s: exit %d, %s", line, status, errs)
		}
	}
}

// A development build has no image and fails before it creates a pod.
func TestImageOfAVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "ghcr.io/crishim/crishim:v1.2.3", "v1.0.0-rc.1": "ghcr.io/crishim/crishim:v1.0.0-rc.1",
		"(devel)": "", "be3bbbd": "", "v1.2.3-4-gbe3bbbd": "", "v0.0.0-20260101000000-be3bbbd00000+dirty": "",
	} {
		got, err := (&options{version: version}).imageOrDefault()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", version, got, err)
		}
	}
}
