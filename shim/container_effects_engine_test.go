package shim_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/versions"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
)

func num(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

// TestUserAndGroups compares the ids of the first process with the status.
func TestUserAndGroups(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	const strict = runtimeapi.SupplementalGroupsPolicy_Strict
	for i, tc := range []struct {
		name string
		sc   *runtimeapi.LinuxContainerSecurityContext
		want string // format "uid gid: groups"
	}{
		{"the image's user", &runtimeapi.LinuxContainerSecurityContext{}, "0 0: 0"},
		{"a number", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(5000)}, "5000 0: 0"},
		{"a name", &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "alice"}, "1000 1000: 1000 1234"},
		{"merge", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(1000), SupplementalGroups: []int64{77}}, "1000 1000: 77 1000 1234"},
		{"strict", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(1000), SupplementalGroups: []int64{77}, SupplementalGroupsPolicy: strict}, "1000 1000: 77 1000"},
		{"merge with a group", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(1000), RunAsGroup: num(9), SupplementalGroups: []int64{77}}, "1000 9: 9 77 1234"},
		{"strict with a group", &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "alice", RunAsGroup: num(9), SupplementalGroupsPolicy: strict}, "1000 9: 9"},
		{"strict root", &runtimeapi.LinuxContainerSecurityContext{SupplementalGroupsPolicy: strict, SupplementalGroups: []int64{5}}, "0 0: 0 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := shell(fmt.Sprintf("user-%d", i), `echo "$(id -u) $(id -g):" $(id -G | tr ' ' '\n' | sort -n)`)
			config.Linux.SecurityContext = tc.sc
			id := p.start(t, config)
			s := c.exited(t, id)
			if got := strings.TrimSpace(c.logs(t, id)); got != tc.want {
				t.Errorf("the process has %q, want %q", got, tc.want)
			}
			u := s.GetUser().GetLinux()
			said := fmt.Sprintf("%d %d: %s", u.GetUid(), u.GetGid(), strings.Trim(fmt.Sprint(u.GetSupplementalGroups()), "[]"))
			if said != tc.want {
				t.Errorf("the status has %q, want %q", said, tc.want)
			}
		})
	}
}

func TestCapabilitiesAndPrivileges(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	const look = "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status"
	field := func(text, name string) string { return strings.TrimSpace(line(text, name+":")) }
	config := shell("dropped", look)
	config.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"CAP_CHOWN", "CHOWN"}}
	config.Linux.SecurityContext.NoNewPrivs = true
	config.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{}
	got := p.output(t, config)
	if field(got, "CapEff") != "0000000000000001" || field(got, "NoNewPrivs") != "1" || field(got, "Seccomp") != "2" {
		t.Errorf("only CHOWN, no new privileges, default seccomp: got\n%s", got)
	}
	got = p.output(t, shell("plain", look))
	if field(got, "NoNewPrivs") != "0" || field(got, "Seccomp") != "0" {
		t.Errorf("nothing asked for: got\n%s", got)
	}
}

func TestSeccompLocalhostProfile(t *testing.T) {
	t.Parallel()
	p := newCRI(t).pod(t, nil)
	profile := filepath.Join(t.TempDir(), "no-chmod.json")
	text := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["chmod", "fchmodat"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config := shell("profile", "chmod 700 /tmp && echo allowed")
	config.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: profile}
	if got := p.output(t, config); !strings.Contains(got, "Operation not permitted") {
		t.Errorf("field: got %q, want chmod refused", got)
	}
	config = shell("old-profile", "chmod 700 /tmp && echo allowed")
	config.Linux.SecurityContext.SeccompProfilePath = "localhost/" + profile //nolint:staticcheck // old kubelets send it
	if got := p.output(t, config); !strings.Contains(got, "Operation not permitted") {
		t.Errorf("deprecated text: got %q, want chmod refused", got)
	}
}

func TestFilesystemOptions(t *testing.T) {
	t.Parallel()
	p := newCRI(t).pod(t, nil)
	config := shell("readonly", "touch /x 2>&1; touch /proc/sys/kernel/hostname 2>&1; wc -c </proc/meminfo")
	config.Linux.SecurityContext.ReadonlyRootfs = true
	config.Linux.SecurityContext.MaskedPaths = []string{"/proc/meminfo"}
	config.Linux.SecurityContext.ReadonlyPaths = []string{"/proc/sys"}
	got := p.output(t, config)
	if strings.Count(got, "Read-only file system") != 2 || !strings.HasSuffix(got, "\n0\n") {
		t.Errorf("read-only root and /proc/sys, masked meminfo: got\n%s", got)
	}
	// Empty lists request an unmasked /proc.
	if got := p.output(t, shell("unmasked", "grep -cE ' /proc/(kcore|keys|sys|bus) ' /proc/mounts")); got != "0\n" {
		t.Errorf("empty lists: got %q masked paths, want 0", got)
	}
	handWritten := shell("default-paths", "grep -cE ' /proc/(kcore|keys|sys|bus) ' /proc/mounts")
	handWritten.Linux = nil
	if got := p.output(t, handWritten); got == "0\n" {
		t.Error("a config without security context has no path masked")
	}
}

func TestProcessConfig(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	config := shell("process", "")
	config.Command, config.Args = []string{"sh"}, []string{"-c", `pwd; echo "$A|$B|$PATH"; cat /etc/hostname`}
	config.WorkingDir = "/new/dir"
	config.Envs = []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "A", Value: []byte("x=y z")}, {Key: "B", Value: nil}}
	want := "/new/dir\nx=y z||/bin\n" + p.config.GetHostname() + "\n"
	if got := p.output(t, config); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	tty := shell("tty", "test -t 0 && test -t 1 && exit 3")
	tty.Tty, tty.Stdin, tty.StdinOnce = true, true, true
	if s := c.exited(t, p.start(t, tty)); s.GetExitCode() != 3 {
		t.Errorf("terminal: got exit code %d, want 3", s.GetExitCode())
	}
}

func TestStopSignal(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	config := shell("signal", "trap 'exit 12' USR1; trap 'exit 13' TERM; echo ready; while :; do sleep 1 & wait; done")
	config.StopSignal = runtimeapi.Signal_SIGNAL_SIGUSR1
	id := p.start(t, config)
	test.Until(t, "the trap is set", func() bool { return strings.Contains(c.logs(t, id), "ready") })
	if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30}); err != nil {
		t.Fatal(err)
	}
	s := c.status(t, id)
	if s.GetExitCode() != 12 || s.GetStopSignal() != runtimeapi.Signal_SIGNAL_SIGUSR1 {
		t.Errorf("got exit code %d and stop signal %s", s.GetExitCode(), s.GetStopSignal())
	}
	// A timeout of 0 kills a container that ignores its stop signal.
	id = p.start(t, shell("deaf", "trap '' TERM; while :; do sleep 1; done"))
	if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if s := c.status(t, id); s.GetExitCode() != 137 || s.GetStopSignal() != runtimeapi.Signal_SIGNAL_SIGTERM {
		t.Errorf("got exit code %d and stop signal %s", s.GetExitCode(), s.GetStopSignal())
	}
}

func TestPIDNamespaces(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	with := func(name string, o *runtimeapi.NamespaceOption) *runtimeapi.ContainerConfig {
		config := shell(name, "readlink /proc/self/ns/pid")
		config.Linux.SecurityContext.NamespaceOptions = o
		return config
	}
	host, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.TrimSpace(p.output(t, with("own", &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER})))
	shared := strings.TrimSpace(p.output(t, with("shared", &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD})))
	again := strings.TrimSpace(p.output(t, with("again", &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD})))
	node := strings.TrimSpace(p.output(t, with("node", &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE})))
	if own == shared || shared != again || node != host || own == host || shared == host {
		t.Errorf("host %s: own %s, pod %s and %s, node %s", host, own, shared, again, node)
	}
	target := shell("target", "readlink /proc/self/ns/pid; "+idle)
	id := p.start(t, target)
	test.Until(t, "the target is up", func() bool { return strings.Contains(c.logs(t, id), "pid:") })
	joined := p.output(t, with("debugger", &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: id}))
	if joined != c.logs(t, id) {
		t.Errorf("target %q, joined %q", c.logs(t, id), joined)
	}
}

func TestContainersShareThePodsNamespaces(t *testing.T) {
	t.Parallel()
	p := newCRI(t).pod(t, nil)
	look := func(name string) string {
		return p.output(t, shell(name, "for n in net ipc; do readlink /proc/self/ns/$n; done; hostname"))
	}
	if a, b := look("a"), look("b"); a != b || !strings.HasSuffix(a, p.config.GetHostname()+"\n") {
		t.Errorf("got %q and %q, want the same and host name %s", a, b, p.config.GetHostname())
	}
}

func TestMounts(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	colon := filepath.Join(dir, "with:colon")
	if err := os.Mkdir(colon, 0o755); err != nil {
		t.Fatal(err)
	}
	config := shell("mounts", "echo 1 >/rw/f; echo 2 2>&1 >/ro/g; echo 3 >/linked/h; echo 4 >/colon/i; ls /made; "+idle)
	config.Mounts = []*runtimeapi.Mount{
		{HostPath: real, ContainerPath: "/rw"},
		{HostPath: real, ContainerPath: "/ro", Readonly: true},
		{HostPath: filepath.Join(dir, "link"), ContainerPath: "/linked"},
		{HostPath: colon, ContainerPath: "/colon"},
		{HostPath: filepath.Join(dir, "missing"), ContainerPath: "/made"},
	}
	id := p.start(t, config)
	for _, f := range []string{"real/f", "real/h", "with:colon/i", "missing"} {
		test.Until(t, f, func() bool { _, err := os.Stat(filepath.Join(dir, f)); return err == nil })
	}
	if _, err := os.Stat(filepath.Join(dir, "real/g")); err == nil {
		t.Error("a read-only mount was written to")
	}
	got := map[string]*runtimeapi.Mount{}
	for _, m := range c.status(t, id).GetMounts() {
		got[m.GetContainerPath()] = m
	}
	for _, want := range config.Mounts {
		if diff := cmp.Diff(want, got[want.GetContainerPath()], protocmp.Transform()); diff != "" {
			t.Errorf("status of %s (-want +got):\n%s", want.GetContainerPath(), diff)
		}
	}
}

// cgroup2 reports whether the engine's host has cgroup v2 alone.
func cgroup2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func TestResources(t *testing.T) {
	t.Parallel()
	look := "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes cpu/cpu.shares cpu/cpu.cfs_quota_us " +
		"cpu/cpu.cfs_period_us cpuset/cpuset.cpus cpuset/cpuset.mems pids/pids.max /proc/1/oom_score_adj"
	created, updated, kubelets := "67108864 100663296 512 50000 100000 0 0 77 200", "134217728 167772160 1024 70000 100000 0 0 77 200",
		"100663296 100663296 2048 80000 100000 0 0 77 300"
	if cgroup2() {
		look = "cd /sys/fs/cgroup; cat memory.max memory.swap.max cpu.weight cpu.max cpuset.cpus cpuset.mems pids.max /proc/1/oom_score_adj memory.high memory.min"
		// Weights are those of runc before 1.3.2.
		created, updated, kubelets = "67108864 33554432 20 50000 100000 0 0 77 200 max 0", "134217728 33554432 39 70000 100000 0 0 77 200 max 0",
			"100663296 0 79 80000 100000 0 0 77 300 79998976 9998336"
	}
	c := newCRI(t)
	p := c.pod(t, nil)
	config := shell("limits", idle)
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 64 << 20, CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, CpusetCpus: "0", CpusetMems: "0", OomScoreAdj: 200,
		MemorySwapLimitInBytes: 96 << 20, Unified: map[string]string{"pids.max": "77"},
	}
	id := p.start(t, config)
	limits := func() string { return strings.Join(strings.Fields(execOutput(t, c, id, look)), " ") }
	if got := limits(); got != created {
		t.Errorf("got %q, want %q", got, created)
	}
	if _, err := c.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, CpuShares: 1024, CpuQuota: 70000},
	}); err != nil {
		t.Fatal(err)
	}
	if got := limits(); got != updated {
		t.Errorf("after the update: got %q, want %q", got, updated)
	}
	r := c.status(t, id).GetResources().GetLinux()
	if r.GetMemoryLimitInBytes() != 128<<20 || r.GetMemorySwapLimitInBytes() != 160<<20 || r.GetCpuShares() != 1024 || r.GetCpuQuota() != 70000 || r.GetCpuPeriod() != 100000 ||
		r.GetCpusetCpus() != "0" || r.GetOomScoreAdj() != 200 {
		t.Errorf("status: got %v", r)
	}
	// A request of kubelets since 1.35. memory.high exists on cgroup v2 only.
	if _, err := c.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 96 << 20, MemorySwapLimitInBytes: 96 << 20, CpuShares: 2048, CpuQuota: 80000, CpuPeriod: 100000, OomScoreAdj: 300,
			Unified: map[string]string{"memory.high": "80000000", "memory.min": "10000000"}, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	if got := limits(); got != kubelets {
		t.Errorf("after the kubelet's update: got %q, want %q", got, kubelets)
	}
	// The kubelet changes the pod's cgroup itself before it asks for this.
	if _, err := c.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.id, Overhead: &runtimeapi.LinuxContainerResources{},
		Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 4 << 20, CpuShares: 2, CpuQuota: 1000, CpuPeriod: 100000},
	}); err != nil {
		t.Error(err)
	}
	if got := limits(); got != kubelets {
		t.Errorf("after the update of the pod: got %q, want %q", got, kubelets)
	}
	if _, err := c.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown container: got %v, want NotFound", err)
	}
}

// TestUnifiedResources: a container has the cgroup v2 files that the engine has no fields for from its start on, they
// outlive a reload of systemd, and a value that the kernel refuses ends the start.
func TestUnifiedResources(t *testing.T) {
	t.Parallel()
	if !cgroup2() {
		t.Skip("this test needs cgroup v2; hack/vm.sh has it")
	}
	c := newCRI(t)
	p := c.pod(t, nil)
	config := shell("unified", idle)
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 64 << 20, Unified: map[string]string{
			"memory.high": "50331648", "memory.min": "4194304", "memory.low": "8388608", "memory.swap.max": "1048576", "memory.oom.group": "1",
			"cpu.idle": "0", "pids.max": "50",
		},
		HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}},
	}
	id := p.start(t, config)
	const look = "cd /sys/fs/cgroup; cat memory.max memory.high memory.min memory.low memory.swap.max memory.oom.group pids.max hugetlb.2MB.max"
	const want = "67108864 50331648 4194304 8388608 1048576 1 50 4194304"
	if got := strings.Join(strings.Fields(execOutput(t, c, id, look)), " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if out, err := exec.Command("systemctl", "daemon-reload").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// systemd before 253 has no property for memory.oom.group.
	reloaded := strings.Replace(want, " 1 50", " 0 50", 1)
	if got := strings.Join(strings.Fields(execOutput(t, c, id, look)), " "); got != want && got != reloaded {
		t.Errorf("after systemctl daemon-reload: got %q, want %q", got, want)
	}
	// The engine's update of memory makes systemd write all files of memory again.
	for _, update := range []*runtimeapi.LinuxContainerResources{
		{Unified: map[string]string{"memory.oom.group": "1", "memory.high": "50331648"}},
		{MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 65 << 20},
		{CpuQuota: 30000, CpuPeriod: 100000, Unified: map[string]string{"memory.high": "no number", "memory.oom.group": "1"}},
	} {
		if _, err := c.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: update}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(execOutput(t, c, id, look)), " "); got != want {
			t.Errorf("after the update %v: got %q, want %q", update, got, want)
		}
	}
	if got, want := execOutput(t, c, id, "cat /sys/fs/cgroup/cpu.max"), "30000 100000\n"; got != want {
		t.Errorf("after an update with a wrong value: got %q, want %q", got, want)
	}
	config = shell("refused", idle)
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.high": "no number"}}
	if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: p.create(t, config)}); err == nil || !strings.Contains(err.Error(), "memory.high") {
		t.Errorf("a value that the kernel refuses: got %v", err)
	}
}

// TestOutOfMemory: a container that the kernel kills has the reason, also if all of its processes are killed together. A
// container whose child is killed lives on. With cgroup v1 the engine can miss the report of a container that ends at
// once; TestTheOutOfMemoryReasonIsSeen covers it.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	if !cgroup2() {
		t.Skip("this test needs cgroup v2; hack/vm.sh has it")
	}
	c := newCRI(t)
	p := c.pod(t, nil)
	const fill = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"
	for name, unified := range map[string]map[string]string{"alone": nil, "group": {"memory.oom.group": "1"}} {
		config := shell(name, "sleep 1000 & sleep 1000 & "+fill)
		config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 16 << 20, Unified: unified}
		if s := c.exited(t, p.start(t, config)); s.GetReason() != "OOMKilled" || s.GetExitCode() != 137 {
			t.Errorf("%s: got %s %d", name, s.GetReason(), s.GetExitCode())
		}
	}
	config := shell("child", "sh -c '"+fill+"'; echo status $?; "+idle)
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 16 << 20}
	id := p.start(t, config)
	test.Until(t, "the child has ended", func() bool { return strings.Contains(c.logs(t, id), "status 137") })
	if s := c.status(t, id); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the child was ended: got %v", s)
	}
	if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30}); err != nil {
		t.Fatal(err)
	}
	if s := c.status(t, id); s.GetExitCode() != 0 {
		t.Errorf("stopped after its child was ended: got %s %d", s.GetReason(), s.GetExitCode())
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	p := newCRI(t).pod(t, nil)
	config := shell("device", "test -c /dev/extra && echo there")
	config.Devices = []*runtimeapi.Device{{HostPath: "/dev/null", ContainerPath: "/dev/extra", Permissions: "rw"}}
	if got := p.output(t, config); got != "there\n" {
		t.Errorf("got %q", got)
	}
	// A device that containers do not have by default; here it is read-only.
	for permissions, want := range map[string]string{"r": "Operation not permitted", "rw": "written", "": "written"} {
		config := shell("device-"+permissions, "(: >/dev/mine) 2>&1 && echo written")
		config.Devices = []*runtimeapi.Device{{HostPath: "/dev/kmsg", ContainerPath: "/dev/mine", Permissions: permissions}}
		if got := p.output(t, config); !strings.Contains(got, want) {
			t.Errorf("permissions %q: got %q, want %q", permissions, got, want)
		}
	}
}

// TestPrivileged checks that a privileged container has all rights and that profiles and masked paths are ignored. A
// host may forbid this to the engine.
func TestPrivileged(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) { config.Linux.SecurityContext.Privileged = true })
	profile := filepath.Join(t.TempDir(), "no-sethostname.json")
	text := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["sethostname"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config := shell("privileged", "hostname new && hostname; wc -c </proc/meminfo; test -c /dev/kmsg && echo devices; grep Seccomp: /proc/self/status")
	config.Linux.SecurityContext.Privileged = true
	config.Linux.SecurityContext.MaskedPaths = []string{"/proc/meminfo"}
	config.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: profile}
	id := p.create(t, config)
	if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		if !strings.Contains(err.Error(), "does not allow privileged containers") {
			t.Error(err)
		}
		t.Skip("this host forbids it")
	}
	c.exited(t, id)
	got := c.logs(t, id)
	if !strings.HasPrefix(got, "new\n") || strings.Contains(got, "\n0\n") || !strings.Contains(got, "devices\nSeccomp:\t0\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestPauseProcess checks the effect of a sandbox's security context on its own process.
func TestPauseProcess(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
			RunAsUser: num(1234), RunAsGroup: num(5678), SupplementalGroups: []int64{77, 99}, ReadonlyRootfs: true,
			Seccomp: &runtimeapi.SecurityProfile{},
		}
	})
	plain := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.Linux.SecurityContext.SeccompProfilePath = "unconfined" //nolint:staticcheck // old kubelets send it
	})
	look := func(id string) (status, root string) {
		t.Helper()
		info, err := c.engine.ContainerInspect(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		proc := fmt.Sprintf("/proc/%d/", info.State.Pid)
		b, err := os.ReadFile(proc + "status")
		if err != nil {
			test.Missing(t, "the engine's processes are not here: %v", err)
		}
		mounts, err := os.ReadFile(proc + "mounts")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if f := strings.Fields(line); len(f) > 3 && f[1] == "/" {
				root = f[3]
			}
		}
		return string(b), root
	}
	status, root := look(p.id)
	for _, want := range []string{
		"Uid:\t1234\t1234\t1234\t1234\n", "Gid:\t5678\t5678\t5678\t5678\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("%q is missing in\n%s", want, status)
		}
	}
	for _, group := range []string{"77", "99"} {
		if !strings.Contains(" "+strings.Join(strings.Fields(line(status, "Groups:")), " ")+" ", " "+group+" ") {
			t.Errorf("group %s is missing in %q", group, line(status, "Groups:"))
		}
	}
	if !strings.HasPrefix(root, "ro,") {
		t.Errorf("the root file system has %q, want it read-only", root)
	}
	status, root = look(plain.id)
	if !strings.Contains(status, "Uid:\t0\t") || !strings.Contains(status, "Seccomp:\t0\n") || !strings.HasPrefix(root, "rw,") {
		t.Errorf("a plain one: root file system %q and\n%s", root, status)
	}
}

func line(text, word string) string {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, word); ok {
			return rest
		}
	}
	return ""
}

// TestRuntimeHandler checks that containers use the pod's handler.
func TestRuntimeHandler(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "handler"}}
	_, err := c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: "no-such-handler"})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no-such-handler") {
		t.Errorf("an unknown handler: got %v", err)
	}
	for _, handler := range []string{"runc", "docker"} {
		p := c.podWith(t, handler, nil)
		s := c.podStatus(t, p.id).GetStatus()
		if s.GetRuntimeHandler() != handler {
			t.Errorf("the status of %q has handler %q", handler, s.GetRuntimeHandler())
		}
		made, err := c.engine.ContainerInspect(t.Context(), p.create(t, shell("c", idle)))
		if err != nil {
			t.Fatal(err)
		}
		if made.HostConfig.Runtime != "runc" {
			t.Errorf("handler %q: the container has runtime %q, want runc", handler, made.HostConfig.Runtime)
		}
	}
}

// TestCDIDevicesOnEngine injects a device by its field and another by an annotation.
func TestCDIDevicesOnEngine(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	config := shell("cdi", "echo $FIELD $ANNOTATION")
	config.CDIDevices = []*runtimeapi.CDIDevice{{Name: "crishim.test/thing=field"}}
	config.Annotations = map[string]string{"cdi.k8s.io/test": "crishim.test/thing=annotation"}
	p := c.pod(t, nil)
	info, err := c.engine.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(info.CDISpecDirs) == 0 {
		if _, err := p.tryCreate(t, config); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "CDI") {
			t.Errorf("an engine without CDI: got %v, want Unimplemented", err)
		}
		return
	}
	dir := info.CDISpecDirs[len(info.CDISpecDirs)-1]
	if err := os.Mkdir(dir, 0o755); err == nil {
		t.Cleanup(func() { os.Remove(dir) })
	}
	spec := filepath.Join(dir, "crishim-test.json")
	t.Cleanup(func() { os.Remove(spec) })
	if err := os.WriteFile(spec, []byte(`{"cdiVersion": "0.5.0", "kind": "crishim.test/thing", "devices": [
		{"name": "field", "containerEdits": {"env": ["FIELD=by field"]}}, {"name": "annotation", "containerEdits": {"env": ["ANNOTATION=by annotation"]}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.output(t, config); got != "by field by annotation\n" {
		t.Errorf("got %q", got)
	}
}

// TestConsoleSizeOnEngine checks the size that the first program of a terminal sees. Engines before API 1.42 set none.
func TestConsoleSizeOnEngine(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	config := shell("size", `[ "$(stty size 2>/dev/null)" = "33 101" ]`)
	config.Tty, config.Annotations = true, map[string]string{api.AnnotationConsoleSize: "33x101"}
	sized := c.exited(t, c.pod(t, nil).start(t, config)).GetExitCode() == 0
	if want := versions.GreaterThanOrEqualTo(c.engine.ClientVersion(), "1.42"); sized != want {
		t.Errorf("the first program sees the size: %t, want %t", sized, want)
	}
}

// TestImageMount needs no engine support: on an old engine the mount is a volume made of the image's layers.
func TestImageMount(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	img, err := c.image.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: testImage}})
	if err != nil {
		t.Fatal(err)
	}
	config := shell("image-mount", "cat /img/etc/group; cat /sub/passwd; touch /img/x 2>&1; /img/bin/busybox echo it runs; "+idle)
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/img", Readonly: true, Image: &runtimeapi.ImageSpec{Image: testImage}},
		{ContainerPath: "/sub", Readonly: true, Image: &runtimeapi.ImageSpec{Image: testImage}, ImageSubPath: "etc"},
	}
	if !mountsImages(t, c) {
		if _, err := p.tryCreate(t, config); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "need Docker Engine 28") {
			t.Errorf("an engine that cannot mount images: got %v, want Unimplemented", err)
		}
		return
	}
	id := p.start(t, config)
	test.Until(t, "the output", func() bool { return strings.Contains(c.logs(t, id), "it runs") })
	got := c.logs(t, id)
	for _, want := range []string{"extra:x:1234:alice", "alice:x:1000:1000", "Read-only file system"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	want := []*runtimeapi.Mount{
		{ContainerPath: "/img", Readonly: true, Image: &runtimeapi.ImageSpec{Image: testImage, ImageRef: img.GetImage().GetId()}},
		{ContainerPath: "/sub", Readonly: true, Image: &runtimeapi.ImageSpec{Image: testImage, ImageRef: img.GetImage().GetId()}, ImageSubPath: "etc"},
	}
	if diff := cmp.Diff(want, c.status(t, id).GetMounts(), protocmp.Transform()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	missing := shell("image-sub", idle)
	missing.Mounts = []*runtimeapi.Mount{{ContainerPath: "/img", Readonly: true, Image: &runtimeapi.ImageSpec{Image: testImage}, ImageSubPath: "no/such"}}
	if _, err := p.tryCreate(t, missing); status.Code(err) != codes.InvalidArgument {
		t.Errorf("missing sub-path: got %v, want InvalidArgument", err)
	}
	missing.Mounts = []*runtimeapi.Mount{{ContainerPath: "/img", Readonly: true, Image: &runtimeapi.ImageSpec{Image: "no/such/image:v1"}}}
	if _, err := p.tryCreate(t, missing); status.Code(err) != codes.NotFound {
		t.Errorf("missing image: got %v, want NotFound", err)
	}
}

func TestVerboseContainerStatus(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	id := p.start(t, shell("verbose", idle))
	r, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.GetInfo()["sandboxID"] != `"`+p.id+`"` || r.GetInfo()["pid"] == "0" || !strings.Contains(r.GetInfo()["info"], `"runtimeSpec"`) {
		t.Errorf("got %v", r.GetInfo())
	}
}
