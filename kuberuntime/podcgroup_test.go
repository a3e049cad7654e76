package kuberuntime

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

// TestPodCgroup runs a pod with resources of its own, with both versions of cgroups. The runtime makes the sandbox's
// cgroup below the pod's.
func TestPodCgroup(t *testing.T) {
	t.Parallel()
	const resources = `
  resources: {limits: {cpu: 2, memory: 64Mi}}
  containers: [{name: a, image: "busybox:1"}]
`
	driver := func(is runtimeapi.CgroupDriver) func() (proto.Message, error) {
		return func() (proto.Message, error) {
			return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: is}}, nil
		}
	}
	const needs = "spec.resources: Forbidden: stubcri does not say that its cgroup driver is cgroupfs"
	for name, c := range map[string]struct {
		v2      bool
		answer  func() (proto.Message, error)
		ignores bool // the runtime puts the sandbox elsewhere
		mode    os.FileMode
		want    string            // the error
		files   map[string]string // below the root of cgroups
	}{
		"v1": {false, driver(runtimeapi.CgroupDriver_CGROUPFS), false, 0o755, "", map[string]string{
			"memory/PARENT/memory.limit_in_bytes": "67108864", "cpu/PARENT/cpu.shares": "2048", "cpu/PARENT/cpu.cfs_quota_us": "200000", "cpu/PARENT/cpu.cfs_period_us": "100000",
		}},
		"v2": {true, driver(runtimeapi.CgroupDriver_CGROUPFS), false, 0o755, "", map[string]string{
			"PARENT/memory.max": "67108864", "PARENT/cpu.max": "200000 100000", "PARENT/cpu.weight": "174",
			"cgroup.subtree_control": "+cpu +memory", "crishim/cgroup.subtree_control": "+cpu +memory",
		}},
		"the systemd driver":   {true, driver(runtimeapi.CgroupDriver_SYSTEMD), false, 0o755, needs, nil},
		"a runtime before 2.0": {true, func() (proto.Message, error) { return nil, status.Error(codes.Unimplemented, "unknown method") }, false, 0o755, needs, nil},
		"no answer":            {true, func() (proto.Message, error) { return nil, status.Error(codes.Unavailable, "gone") }, false, 0o755, "ask for the runtime's cgroup driver: rpc error", nil},
		"another namespace":    {true, driver(runtimeapi.CgroupDriver_CGROUPFS), true, 0o755, "spec.resources: Forbidden: stubcri does not put the pod into its cgroup", nil},
		"no right to make it":  {true, driver(runtimeapi.CgroupDriver_CGROUPFS), false, 0, "spec.resources: Forbidden: the pod's cgroup cannot be made: ", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "cgroup")
			if c.mode == 0 {
				root += "/missing"
			} else if err := os.MkdirAll(filepath.Join(root, "memory"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(filepath.Dir(root), "cgroup", "cpu"), 0o755); err != nil {
				t.Fatal(err)
			}
			p, set := parse(t, resources)
			parent := "crishim/pod" + string(p.UID)
			below := []string{filepath.Join(root, parent, "sandbox")}
			if !c.v2 {
				below = []string{filepath.Join(root, "memory", parent, "sandbox"), filepath.Join(root, "cpu", parent, "sandbox")}
			}
			f := newFixture(t, func(o *Options) {
				o.Host.CgroupRoot, o.Host.CgroupV2 = root, c.v2
				o.answer(map[string]func() (proto.Message, error){"RuntimeConfig": c.answer, "RunPodSandbox": func() (proto.Message, error) {
					for _, dir := range below {
						if err := os.Mkdir(dir, 0o755); err != nil && !c.ignores {
							return nil, err
						}
						if c.ignores {
							os.Remove(dir)
						}
					}
					return nil, nil
				}})
			})
			_, err := f.Up(deadline(t), p, set, false)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if made, _ := f.stub.Left(); c.want != "" {
				if made != 0 {
					t.Error("a sandbox is left")
				}
				return
			}
			for name, want := range c.files {
				text, err := os.ReadFile(filepath.Join(root, strings.ReplaceAll(name, "PARENT", parent)))
				if err != nil || string(text) != want {
					t.Errorf("%s: got %q, %v, want %q", name, text, err, want)
				}
			}
			for name := range c.files { // the files of a cgroup go with its directory, a test's do not
				if strings.Contains(name, "PARENT") {
					_ = os.Remove(filepath.Join(root, strings.ReplaceAll(name, "PARENT", parent)))
				}
			}
			// The sandbox's cgroup is still there: the pod's is busy, and all else goes.
			status := f.status(t, p)
			if err := f.Remove(deadline(t), nil, status, nil); err == nil || !strings.Contains(err.Error(), "remove the pod's cgroup: ") {
				t.Errorf("a busy cgroup: got %v", err)
			}
			for _, dir := range []string{f.o.Dirs.Pod(string(p.UID)), f.o.Dirs.PodLogs(p)} {
				if _, err := os.Stat(dir); !os.IsNotExist(err) {
					t.Errorf("%s is left: %v", dir, err)
				}
			}
			for _, dir := range below {
				_ = os.Remove(dir)
			}
			if err := removePodCgroup(f.o.Host, p); err != nil {
				t.Fatal(err)
			}
			for _, dir := range below {
				if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
					t.Errorf("%s is left: %v", filepath.Dir(dir), err)
				}
			}
		})
	}
}

// TestPodCgroupOfAnEarlierProcess: a sandbox whose process was interrupted before its check is checked by the next
// process, and removed even if that one is interrupted.
func TestPodCgroupOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := newFixture(t, func(o *Options) { o.Host.CgroupRoot, o.Host.CgroupV2 = root, true })
	p, set := parse(t, `
  resources: {limits: {memory: 64Mi}}
  containers: [{name: a, image: "busybox:1"}]
`)
	left := func() string {
		return f.stub.AddPod(p.Namespace, p.Name, func(c *runtimeapi.PodSandboxConfig) {
			c.Metadata.Uid = string(p.UID)
			c.Labels = map[string]string{kube.LabelPodName: p.Name, kube.LabelPodNamespace: p.Namespace, kube.LabelPodUID: string(p.UID)}
		})
	}
	left()
	const want = "spec.resources: Forbidden: stubcri does not put the pod into its cgroup"
	if _, err := f.Up(deadline(t), p, set, false); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&syncing{m: f.Manager, pod: p, sandbox: left()}).checkPodCgroup(interrupted); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if pods, containers := f.stub.Left(); pods+containers != 0 {
		t.Errorf("%d sandboxes and %d containers are left", pods, containers)
	}
}

// TestPodCgroupOfARunningPod: a restart of one container does not end the others because the cgroup cannot be seen.
func TestPodCgroupOfARunningPod(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f := newFixture(t, func(o *Options) { o.Host.CgroupRoot, o.Host.CgroupV2 = root, true })
	p, set := parse(t, `
  containers: [{name: a, image: "busybox:1"}, {name: b, image: "busybox:1"}]
`)
	if _, err := f.Up(deadline(t), p, set, false); err != nil {
		t.Fatal(err)
	}
	f.stub.Exit(f.status(t, p).Container("a").ID, 1)
	p.Spec.Resources = &v1.ResourceRequirements{}
	if r := f.SyncPod(t.Context(), p, set, f.status(t, p)); r.Err != nil {
		t.Error(r.Err)
	}
	if b := f.status(t, p).Container("b"); b == nil || !b.Running() {
		t.Errorf("got %v, want a running container", b)
	}
}
