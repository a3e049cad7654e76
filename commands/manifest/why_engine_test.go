package manifest

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	imagespec "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

// death is a pod that is made to die.
type death struct {
	manifest string // rest of its container
	pod      string // rest of its pod's spec
	want     string // severity and code, "" for none
	because  string // a pattern for the text with the evidence
}

// deaths are pods that apply creates and does not restart. REGISTRY is an open registry, PRIVATE a registry with a
// login, PORT a port that the test listens on.
var deaths = map[string]death{
	"fine":          {manifest: `command: [sleep, "1000"]`},
	"done":          {manifest: `command: ["true"]`},
	"oom":           {manifest: `command: [sh, -c, "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"], resources: {limits: {memory: 16Mi}}`, want: "error out-of-memory", because: `limit is 16MiB`},
	"liar":          {manifest: `command: [sh, -c, "echo 'Out of memory: Killed process 1 (main)'; echo 'OCI runtime create failed: exec: no such file or directory' | tee /dev/termination-log; exit 3"]`, want: "error exited"},
	"forger":        {manifest: `command: [sh, -c, "exit 4"]`, want: "error exited", because: "status 4"},
	"crash":         {manifest: `command: [sh, -c, "exit 139"]`, want: "error ended-by-signal", because: "SIGSEGV"},
	"outside":       {manifest: `command: [sleep, "1000"]`, want: "error ended-by-signal", because: "SIGKILL"},
	"notfound":      {manifest: `command: [nosuchcommand]`, want: "error command-not-found", because: "nosuchcommand"},
	"nofile":        {manifest: `command: [/bin/nosuch]`, want: "error command-not-found"},
	"noexec":        {manifest: `command: [/etc/passwd]`, want: "error not-executable"},
	"directory":     {manifest: `command: [/bin]`, want: "error not-executable"},
	"config":        {manifest: `command: [sleep, "1000"], securityContext: {runAsNonRoot: true}`, want: "error config-error", because: "image runs as root"},
	"shell":         {manifest: `command: [sh, -c, nosuchcommand]`, want: "error exited", because: "127"},
	"away":          {manifest: `image: "localhost:1/no/such:1"`, want: "error registry-not-found"},
	"noimage":       {manifest: `image: "REGISTRY/nosuch:1"`, want: "error image-not-found"},
	"login":         {manifest: `image: "PRIVATE/app:1"`, want: "error image-not-allowed"},
	"foreign":       {manifest: `image: "REGISTRY/foreign:1"`, want: "error wrong-architecture"},
	"nointerpreter": {manifest: `image: "REGISTRY/programs:1", command: [/bin/script]`, want: "error interpreter-not-found", because: "/bin/script needs /bin/nosuch, which the container does not have"},
	"noloader":      {manifest: `image: "REGISTRY/programs:1", command: [loaded], env: [{name: PATH, value: "/sbin:/link"}]`, want: "error interpreter-not-found", because: "/link/loaded needs /lib/ld-nosuch.so.1, which"},
	"windows":       {manifest: `image: "REGISTRY/programs:1", command: [./windows], workingDir: /bin`, want: "error interpreter-not-found", because: "(?s)/bin/windows needs /bin/nosuch.*carriage return"},
	"plaintext":     {manifest: `image: "REGISTRY/programs:1", command: [/bin/text]`, want: "error not-executable", because: "no program|permission denied|exec format error"},
	"mainframe":     {manifest: `image: "REGISTRY/programs:1", command: [/bin/foreign]`, want: "error wrong-architecture", because: "/bin/foreign is for s390, and this host is "},
	"never":         {manifest: `image: "localhost:1/no/such:1", imagePullPolicy: Never`, want: "error image-not-present"},
	"unready":       {manifest: `command: [sleep, "1000"], readinessProbe: {exec: {command: [sh, -c, "echo no database; false"]}}`, want: "error not-ready", because: "no database"},
	"hook":          {manifest: `command: [sleep, "1000"], lifecycle: {postStart: {exec: {command: ["false"]}}}`, pod: "terminationGracePeriodSeconds: 1, ", want: "error hook-failed", because: "postStart"},
	"port":          {manifest: `command: [httpd, -f, -p, "PORT"], ports: [{containerPort: PORT}]`, pod: "hostNetwork: true, ", want: "error port-taken", because: `process PID \(`},
	"killed":        {manifest: `command: [sleep, "1000"]`, want: "note stopped", because: `the engine was asked at .* to send it signal \d+`},
	"stopped":       {manifest: `command: [sleep, "1000"]`, pod: "terminationGracePeriodSeconds: 0, ", want: "note stopped", because: "signal|its pod was stopped"},
	"orphan":        {manifest: `command: [sleep, "1000"]`, want: "error sandbox-gone"},
}

// kept are pods that sync restarts.
var kept = map[string]death{
	"loop":    {manifest: `command: [sh, -c, "exit 5"]`, pod: "restartPolicy: Always, ", want: "error exited", because: "status 5.*it starts again in"},
	"live":    {manifest: `command: [sleep, "1000"], livenessProbe: {exec: {command: [sh, -c, "echo no pulse; false"]}, periodSeconds: 1, failureThreshold: 1}`, pod: "terminationGracePeriodSeconds: 0, ", want: "error killed-by-probe", because: "(?s)liveness probe.*no pulse"},
	"again":   {manifest: `command: [sh, -c, "sleep 1000"], livenessProbe: {exec: {command: [sh, -c, "test -e /host/again || ! touch /host/again"]}, periodSeconds: 5, failureThreshold: 1}, volumeMounts: [{name: host, mountPath: /host}]`, pod: "restartPolicy: Always, terminationGracePeriodSeconds: 0, volumes: [{name: host, hostPath: {path: DIR}}], ", want: "warning killed-by-probe", because: "runs again"},
	"startup": {manifest: `command: [sleep, "1000"], startupProbe: {tcpSocket: {port: 9}, periodSeconds: 1, failureThreshold: 1}`, pod: "terminationGracePeriodSeconds: 0, ", want: "error killed-by-probe", because: "(?s)startup probe.*refused"},
	"volume":  {manifest: `volumeMounts: [{name: v, mountPath: /v}]`, pod: "volumes: [{name: v, hostPath: {path: DIR/nosuch, type: Directory}}], ", want: "error mount-missing", because: "DIR/nosuch"},
	"sandbox": {pod: `securityContext: {sysctls: [{name: net.ipv4.nosuch, value: "1"}]}, `, want: "error sandbox-failed", because: "nosuch"},
}

// TestStagedDeaths makes pods die at once, and asks why.
func TestStagedDeaths(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "pod directories need root")
	}
	eachRuntime(t, func(t *testing.T, endpoint, image string) {
		onDocker := strings.HasPrefix(endpoint, "docker:")
		listener, err := net.Listen("tcp", ":0") //nolint:gosec // as a server on the host does
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		w := newStage(t, endpoint, image, "PORT", port, "PID", fmt.Sprint(os.Getpid()))
		want := maps.Clone(deaths)
		maps.Copy(want, kept)
		network := death{want: "error network-failed", because: "chained plugin"}
		if onDocker {
			hostPort := death{manifest: `command: [sleep, "1000"], ports: [{containerPort: 80, hostPort: PORT}]`, want: "error port-taken", because: `process PID \(`}
			w.sync(w.process, map[string]death{"hostport": hostPort})
			w.sync(w.withoutNetwork(), map[string]death{"network": network})
			want["hostport"] = hostPort
		} else {
			network.pod = "runtimeClassName: no-network, "
			w.sync(w.process, map[string]death{"network": network})
			killed := want["killed"] // containerd keeps no journal
			killed.want, killed.because = "error ended-by-signal", "probably ended by SIG(KILL|TERM)"
			want["killed"] = killed
		}
		want["network"] = network
		w.sync(w.process, kept)
		w.apply(deaths)
		for _, c := range w.containers() {
			var err error
			switch c.GetLabels()["io.kubernetes.pod.name"] {
			case "killed":
				_, err = w.r.conn.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.GetId()})
			case "stopped":
				_, err = w.r.conn.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: c.GetPodSandboxId()})
			case "outside":
				var res *runtimeapi.ContainerStatusResponse
				if res, err = w.r.conn.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true}); err == nil {
					err = killProcess(res.GetInfo())
				}
			case "orphan":
				var res *runtimeapi.PodSandboxStatusResponse
				if res, err = w.r.conn.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: c.GetPodSandboxId(), Verbose: true}); err == nil {
					err = killProcess(res.GetInfo())
				}
			}
			if err != nil {
				t.Errorf("%s: %v", c.GetLabels()["io.kubernetes.pod.name"], err)
			}
		}
		w.expect(want)
		w.afterReboot("outside")
	})
}

// TestKilledForMemory: when a child of a container uses too much memory, the kernel ends the container. With cgroup v1,
// or if sync was told so, it ends the child alone.
func TestKilledForMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "pod directories need root")
	}
	eachRuntime(t, func(t *testing.T, endpoint, image string) {
		w := newStage(t, endpoint, image)
		alone := death{
			manifest: `command: [sh, -c, "sh -c 'x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done'; sleep 1000"], resources: {limits: {memory: 16Mi}}`,
			want:     "warning process-killed", because: `\(sh\)|its cgroup counts`,
		}
		together := alone
		if host, err := criconfig.ReadHost(); err != nil {
			t.Fatal(err)
		} else if host.CgroupV2 {
			together.want, together.because = "error out-of-memory", `\(sh\).*its limit of 16MiB; the kernel ended all other`
		}
		w.singleOOM = true
		w.sync(w.process, map[string]death{"alone": alone})
		w.apply(map[string]death{"together": together})
		w.expect(map[string]death{"alone": alone, "together": together})
	})
}

// afterReboot asks why a pod's container ended on a node that seems to have started just then.
func (w *stage) afterReboot(name string) {
	root := w.TempDir()
	c := w.containers()[name]
	r, err := w.r.conn.Runtime.ContainerStatus(w.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
	w.must(err)
	w.must(os.Mkdir(filepath.Join(root, "proc"), 0o755))
	w.must(os.WriteFile(filepath.Join(root, "proc", "stat"), fmt.Appendf(nil, "cpu 0 0 0 0 0 0 0 0 0 0\nbtime %d\n", r.GetStatus().GetFinishedAt()/int64(time.Second)+2), 0o600))
	collector, err := diagnose.Open(w.Context(), w.r.conn, diagnose.Options{Dirs: pod.DefaultDirs(w.process.LookupEnv), Now: w.process.Now, Host: diagnose.Host{Root: root}})
	w.must(err)
	defer collector.Close()
	pods, err := collector.Pods(w.Context())
	w.must(err)
	pods = slices.DeleteFunc(pods, func(p *pod.Pod) bool { return p.Namespace != w.namespace || p.Name != name })
	facts, err := collector.Collect(w.Context(), pods...)
	w.must(err)
	d := death{want: "error node-restarted", because: "probably because the node restarted.*the node started at"}
	if wrong := d.differs(name, diagnose.Explain(facts), w.names); wrong != "" {
		w.Errorf("%s, after the node's start: %s", name, wrong)
	}
}

// TestEngineRestarts: containers end with their engine, which is stopped in two ways.
func TestEngineRestarts(t *testing.T) {
	enginetest.Require(t)
	if os.Geteuid() != 0 {
		test.Missing(t, "an engine of its own needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "why") // short, for its sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	e := &ownEngine{T: t, dir: dir, host: "unix://" + filepath.Join(dir, "s")}
	t.Cleanup(e.clean)
	e.start()
	e.must(e.docker("sh", "-c", "docker save "+testImage()+" | DOCKER_HOST="+e.host+" docker load"))
	endpoint := "docker://" + filepath.Join(dir, "s")
	for signal, name := range map[syscall.Signal]string{syscall.SIGTERM: "term", syscall.SIGKILL: "kill"} {
		w := newStage(t, endpoint, testImage())
		pods := map[string]death{
			name:         {manifest: `command: [sh, -c, "trap 'exit 1' TERM; sleep 1000 & wait"]`, pod: "hostNetwork: true, "},
			name + "end": {manifest: `command: [sh, -c, "exit 3"]`, pod: "hostNetwork: true, ", want: "error exited"},
		}
		w.apply(pods)
		w.expect(pods)
		_ = w.r.close()
		w.must(cli.Sleep(t.Context(), 2*time.Second)) // the kernel has the time of its start in whole seconds
		e.stop(signal)
		e.start()
		_, printer, connector := invocationOf(w.process)
		if w.r, err = openPodRuntime(t.Context(), printer, connector, podRuntimeOptions{}); err != nil {
			t.Fatal(err)
		}
		w.expect(map[string]death{name: {want: "error engine-restarted", because: "probably because the engine restarted.*the engine's process started at"}})
	}
}

// ownEngine is a Docker engine that no other test uses.
type ownEngine struct {
	*testing.T
	dir, host string
	cmd       *exec.Cmd
}

func (e *ownEngine) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *ownEngine) docker(command ...string) error {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", command, err, out)
	}
	return err
}

func (e *ownEngine) start() {
	e.must(os.WriteFile(filepath.Join(e.dir, "daemon.json"), []byte("{}"), 0o600))
	e.cmd = exec.Command("dockerd", "--config-file", filepath.Join(e.dir, "daemon.json"), "--data-root", filepath.Join(e.dir, "d"), "--exec-root", filepath.Join(e.dir, "e"), "-H", e.host,
		"--pidfile", filepath.Join(e.dir, "p"), "--group", fmt.Sprint(os.Getgid()), "--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false", "--storage-driver", "vfs")
	// On a busy machine dockerd has its containerd dump its stacks to TMPDIR.
	e.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "TMPDIR="+e.dir)
	var said test.Buffer
	e.cmd.Stdout, e.cmd.Stderr = &said, &said
	for _, file := range []string{"p", "e/containerd/containerd.pid"} { // of a killed engine
		e.must(os.RemoveAll(filepath.Join(e.dir, file)))
	}
	e.must(e.cmd.Start())
	for deadline := time.Now().Add(time.Minute); ; {
		err := e.docker("docker", "-H", e.host, "version")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.Fatal(err, said.String())
		}
		e.must(cli.Sleep(e.Context(), 100*time.Millisecond))
	}
}

func (e *ownEngine) stop(signal syscall.Signal) {
	_ = e.cmd.Process.Signal(signal) // it may have ended
	_ = e.cmd.Wait()                 // Wait returns an error after a signal
}

// clean ends the engine and removes its files and containers.
func (e *ownEngine) clean() {
	_ = e.docker("sh", "-c", "docker -H "+e.host+" rm -f $(docker -H "+e.host+" ps -aq)") // a failed test leaves some
	e.stop(syscall.SIGTERM)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		e.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, e.dir+"/") {
			defer func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) }() // the last first
		}
	}
}

// TestFullNode: a filesystem that pods depend on is full, or has no inodes.
func TestFullNode(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "a filesystem is mounted as root")
	}
	eachRuntime(t, func(t *testing.T, endpoint, _ string) {
		for options, want := range map[string]diagnose.Code{"size=64k": "disk-full", "size=1m,nr_inodes=8": "inodes-full"} {
			root := t.TempDir()
			if err := syscall.Mount("tmpfs", root, "tmpfs", 0, options); err != nil {
				test.Missing(t, "no tmpfs can be mounted: %v", err)
			}
			var err error
			for n := 0; err == nil; n++ { // until there is no room
				err = os.WriteFile(filepath.Join(root, fmt.Sprint("fill", n)), make([]byte, 1<<12), 0o600)
			}
			process := engineProcess(t, endpoint, root)
			var out strings.Builder
			process.Out = &out
			_, printer, connector := invocationOf(process)
			o := whyOptions{}
			o.view.Format.Kind = output.JSON
			failed := o.run(t.Context(), printer, connector)
			if err := syscall.Unmount(root, 0); err != nil {
				t.Error(err)
			}
			var report diagnose.Report
			if err := json.Unmarshal([]byte(out.String()), &report); err != nil || failed != nil {
				t.Fatal(err, failed)
			}
			if !slices.ContainsFunc(report.Findings, func(f diagnose.Finding) bool {
				return f.Code == want && f.Severity == diagnose.Error && f.Pod == "" && strings.Contains(f.Text, root)
			}) {
				t.Errorf("%s: no %s in %s", options, want, out.String())
			}
		}
	})
}

// killProcess ends the process that the verbose information of a container or sandbox names.
func killProcess(verbose map[string]string) error {
	var info struct {
		Pid int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(verbose["info"]), &info); err != nil || info.Pid <= 0 {
		return fmt.Errorf("no pid in %v: %w", verbose, err)
	}
	return syscall.Kill(info.Pid, syscall.SIGKILL)
}

// stage is the namespace of a runtime in which the pods die.
type stage struct {
	*testing.T
	dir       string
	process   *cli.Process
	r         *podRuntime
	image     string
	namespace string
	names     *strings.Replacer
	singleOOM bool // of sync
}

func newStage(t *testing.T, endpoint, image string, names ...string) *stage {
	w := &stage{T: t, dir: t.TempDir(), image: image, namespace: fmt.Sprintf("why-%d", os.Getpid())}
	open, private := whyRegistries(t)
	w.names = strings.NewReplacer(append(names, "IMAGE", image, "REGISTRY", open, "PRIVATE", private, "DIR", w.dir)...)
	w.process = engineProcess(t, endpoint, filepath.Join(w.dir, "root"))
	_, printer, connector := invocationOf(w.process)
	var err error
	if w.r, err = openPodRuntime(t.Context(), printer, connector, podRuntimeOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.r.close() })
	return w
}

// manifests writes the manifests of pods to a file.
func (w *stage) manifests(pods map[string]death, file string) {
	text := "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: no-network}\nhandler: no-network\n"
	for name, d := range pods {
		fields := []string{"name: main"}
		if d.manifest != "" {
			fields = append(fields, d.manifest)
		}
		if !strings.Contains(d.manifest, "image:") {
			fields = append(fields, "imagePullPolicy: IfNotPresent, image: "+w.image)
		}
		if !strings.Contains(d.pod, "restartPolicy") {
			d.pod += "restartPolicy: Never, "
		}
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {reason: OOMKilled}, annotations: {io.kubernetes.container.reason: OOMKilled}}\nspec: {%scontainers: [{%s}]}\n",
			name, w.namespace, w.names.Replace(d.pod), w.names.Replace(strings.Join(fields, ", ")))
	}
	w.must(os.MkdirAll(filepath.Dir(file), 0o755))
	w.must(os.WriteFile(file, []byte(text), 0o600))
	w.Cleanup(func() { w.remove(slices.Collect(maps.Keys(pods))) })
}

func (w *stage) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *stage) remove(names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	o := deleteOptions{names: names, grace: new(int64), ignoreMissing: true, quiet: true}
	o.in.Namespace = w.namespace
	_, printer, connector := invocationOf(w.process)
	if err := o.run(ctx, printer, connector); err != nil {
		w.Error(err)
	}
}

// apply creates pods, most of which fail.
func (w *stage) apply(pods map[string]death) {
	file := filepath.Join(w.dir, "pods.yaml")
	w.manifests(pods, file)
	in, printer, connector := invocationOf(w.process)
	set, err := readManifests(in, manifest.Options{}, []string{file})
	w.must(err)
	up := applyOptions{set: set, quiet: true}
	_ = up.run(w.Context(), printer, connector)
}

// sync keeps pods running until the test ends.
func (w *stage) sync(process *cli.Process, pods map[string]death) {
	directory, err := os.MkdirTemp(w.dir, "sync")
	w.must(err)
	w.manifests(pods, filepath.Join(directory, "pods.yaml"))
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	_, printer, connector := invocationOf(process)
	o := syncOptions{runtime: podRuntimeOptions{singleOOM: w.singleOOM}, loop: kuberuntime.LoopOptions{Dir: directory, GC: kuberuntime.GCPolicy{MaxPerContainer: 1, MaxContainers: -1}}}
	go func() { ended <- o.run(ctx, printer, connector) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

// withoutNetwork returns an environment in which the shim has a network plugin that refuses every pod.
func (w *stage) withoutNetwork() *cli.Process {
	conf := filepath.Join(w.dir, "cni")
	w.must(os.MkdirAll(conf, 0o755))
	w.must(os.WriteFile(filepath.Join(conf, "10-none.conf"), []byte(`{"cniVersion": "0.4.0", "name": "none", "type": "portmap"}`), 0o600))
	settings := filepath.Join(w.dir, "shim.yaml")
	w.must(os.WriteFile(settings, []byte("network-plugin: cni\ncni-conf-dir: "+conf+"\n"), 0o600))
	process := *w.process
	process.LookupEnv = func(name string) (string, bool) {
		if name == "CRISHIM_SHIM_CONFIG" {
			return settings, true
		}
		return w.process.LookupEnv(name)
	}
	return &process
}

// containers returns the containers of the stage, by the names of their pods.
func (w *stage) containers() map[string]*runtimeapi.Container {
	list, err := w.r.conn.Runtime.ListContainers(w.Context(), &runtimeapi.ListContainersRequest{})
	w.must(err)
	found := map[string]*runtimeapi.Container{}
	for _, c := range list.GetContainers() {
		if c.GetLabels()["io.kubernetes.pod.namespace"] == w.namespace {
			found[c.GetLabels()["io.kubernetes.pod.name"]] = c
		}
	}
	return found
}

// report returns the answers of why about all pods of the stage.
func (w *stage) report() diagnose.Report {
	var out strings.Builder
	o := whyOptions{}
	o.in.Namespace = w.namespace
	o.view.Format.Kind = output.JSON
	process := *w.process
	process.Out = &out
	_, printer, connector := invocationOf(&process)
	w.must(o.run(w.Context(), printer, connector))
	var report diagnose.Report
	w.must(json.Unmarshal([]byte(out.String()), &report))
	return report
}

// expect waits until each pod has its verdict: an end reaches a runtime's lists after the call. A pod
// that sync restarts, or whose signal is in the engine's short journal, needs its verdict only once.
func (w *stage) expect(pods map[string]death) {
	w.Helper()
	wrong := map[string]string{}
	for name := range pods {
		wrong[name] = "not asked"
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		report, pending := w.report(), 0
		for name := range wrong {
			_, again := kept[name]
			if wrong[name] = pods[name].differs(name, report.Findings, w.names); wrong[name] == "" && (again || name == "killed") {
				delete(wrong, name)
			} else if wrong[name] != "" {
				pending++
			}
		}
		if pending == 0 || time.Now().After(deadline) {
			break
		}
		w.must(cli.Sleep(w.Context(), 200*time.Millisecond))
	}
	for name, text := range wrong {
		if text != "" {
			w.Errorf("%s: %s", name, text)
		}
	}
}

// differs returns the difference between the verdict on a pod and the expected one.
func (d death) differs(name string, found []diagnose.Finding, names *strings.Replacer) string {
	var codes, text []string
	for _, f := range found {
		if f.Pod == name {
			codes = append(codes, string(f.Severity)+" "+string(f.Code))
			text = append(append(text, f.Text), f.Evidence...)
		}
	}
	said := strings.Join(text, "\n")
	if got := strings.Join(codes, ", "); got != d.want {
		return fmt.Sprintf("got %q, want %q: %s", got, d.want, said)
	}
	if !regexp.MustCompile("(?s)" + names.Replace(d.because)).MatchString(said) {
		return fmt.Sprintf("no %q in:\n%s", names.Replace(d.because), said)
	}
	return ""
}

// whyRegistries starts an open registry, which has an image for other processors only, and a registry with a login.
func whyRegistries(t *testing.T) (open, private string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	asks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
	}))
	t.Cleanup(asks.Close)
	image, err := random.Image(1<<10, 1)
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image, Descriptor: imagespec.Descriptor{Platform: &imagespec.Platform{OS: "linux", Architecture: "s390x"}}})
	ref, err := name.ParseReference(server.Listener.Addr().String() + "/foreign:1")
	if err == nil {
		err = remote.WriteIndex(ref, index, remote.WithContext(t.Context()))
	}
	if err == nil {
		err = pushPrograms(t, server.Listener.Addr().String()+"/programs:1")
	}
	if err != nil {
		t.Fatal(err)
	}
	return server.Listener.Addr().String(), asks.Listener.Addr().String()
}

// pushPrograms pushes an image of programs that cannot run because of their content. The second layer hides the loader
// of the first.
func pushPrograms(t *testing.T, to string) error {
	t.Helper()
	own := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	first, err := layerOf(map[string]string{"lib/ld-nosuch.so.1": "hidden", "bin/script": "replaced"})
	if err != nil {
		return err
	}
	second, err := layerOf(map[string]string{
		"bin/script": "#!/bin/nosuch -x\n", "bin/loaded": program(own, "/lib/ld-nosuch.so.1"), "bin/foreign": program(elf.EM_S390, "/lib/ld64.so.1"),
		"lib/.wh.ld-nosuch.so.1": "", "link": "", "bin/windows": "#!/bin/nosuch\r\n", "bin/text": "echo\n",
	})
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, first, second)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	return remote.Write(ref, image, remote.WithContext(t.Context()))
}

// layerOf returns a layer of programs. The file called link is a link to /bin.
func layerOf(files map[string]string) (imagespec.Layer, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for name, content := range files {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
		if name == "link" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, "/bin"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
}

// program returns an ELF file for a machine, with the name of a loader and nothing else.
func program(machine elf.Machine, loader string) string {
	order := binary.ByteOrder(binary.LittleEndian)
	head := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(head.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	if machine == elf.EM_S390 {
		order, head.Ident[elf.EI_DATA] = binary.BigEndian, byte(elf.ELFDATA2MSB)
	}
	var text bytes.Buffer
	_ = binary.Write(&text, order, head)
	_ = binary.Write(&text, order, elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 120, Filesz: uint64(len(loader) + 1), Memsz: uint64(len(loader) + 1), Align: 1})
	return text.String() + loader + "\x00"
}
