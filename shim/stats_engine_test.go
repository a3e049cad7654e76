package shim_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// busy is a script that writes a megabyte and then uses the CPU.
const busy = "dd if=/dev/zero of=/written bs=1024 count=1024 2>/dev/null; echo ready; trap 'exit 0' TERM; while :; do :; done"

func startBusy(t *testing.T, c *cri, p *pod) string {
	t.Helper()
	config := shell("busy", busy)
	config.Labels = map[string]string{"test": "busy"}
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuQuota: 20000, CpuPeriod: 100000, CpuShares: 512}
	id := p.start(t, config)
	test.Until(t, "the file is written", func() bool { return strings.Contains(c.logs(t, id), "ready") })
	return id
}

func TestContainerStats(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	id := startBusy(t, c, p)
	var first uint64
	test.Until(t, "a rate and more processor time", func() bool {
		r, err := c.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		s := r.GetStats()
		checkStats(t, s)
		used := s.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		if first == 0 {
			first = used
		}
		return used > first && s.GetCpu().GetUsageNanoCores().GetValue() > 0 && s.GetWritableLayer().GetUsedBytes().GetValue() >= 1<<20
	})
	for name, f := range map[string]*runtimeapi.ContainerStatsFilter{
		"id": {Id: id}, "sandbox": {PodSandboxId: p.id}, "label": {Id: id[:20], LabelSelector: map[string]string{"test": "busy"}},
	} {
		r, err := c.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: f})
		if err != nil || len(r.GetStats()) != 1 || r.GetStats()[0].GetAttributes().GetId() != id {
			t.Errorf("list by %s: got %v, %v", name, r, err)
		}
	}
	if r, err := c.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: "none"}}); err != nil || len(r.GetStats()) != 0 {
		t.Errorf("list of nothing: got %v, %v", r, err)
	}
	if _, err := c.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("no such container: got %v", err)
	}
	created := p.create(t, shell("created", idle))
	if r, err := c.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: created}); err != nil || r.GetStats().GetCpu() != nil || r.GetStats().GetAttributes().GetId() != created {
		t.Errorf("a container that does not run: got %v, %v", r, err)
	}
}

// TestStatsAreTheEngines compares statistics with the engine's, from which `docker stats` computes its columns, and with
// the kernel's files.
func TestStatsAreTheEngines(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	// Memory that stays, pages that are read once and then inactive, and blocks that are written.
	config := shell("steady", "dd if=/dev/zero of=/dev/shm/kept bs=1M count=24 && dd if=/dev/zero of=/written bs=1M count=8 conv=fsync && cat /written >/dev/null; echo ready; "+idle)
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, CpuQuota: 50000, CpuPeriod: 100000}
	id := p.start(t, config)
	test.Until(t, "the files are written", func() bool { return strings.Contains(c.logs(t, id), "ready") })
	measure := func() *runtimeapi.ContainerStats {
		t.Helper()
		r, err := c.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStats()
	}
	s := measure()
	answer, err := c.engine.ContainerStatsOneShot(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var engine container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&engine); err != nil {
		t.Fatal(err)
	}
	later := measure() // on a slow machine the container works on between the measurements
	m := engine.MemoryStats
	inactive := cmp.Or(m.Stats["total_inactive_file"], m.Stats["inactive_file"])
	for name, values := range map[string][3]uint64{
		"working set":    {s.GetMemory().GetWorkingSetBytes().GetValue(), m.Usage - inactive, later.GetMemory().GetWorkingSetBytes().GetValue()},
		"memory":         {s.GetMemory().GetUsageBytes().GetValue(), m.Usage, later.GetMemory().GetUsageBytes().GetValue()},
		"anonymous":      {s.GetMemory().GetRssBytes().GetValue(), cmp.Or(m.Stats["total_rss"], m.Stats["anon"]), later.GetMemory().GetRssBytes().GetValue()},
		"processor time": {s.GetCpu().GetUsageCoreNanoSeconds().GetValue(), engine.CPUStats.CPUUsage.TotalUsage, later.GetCpu().GetUsageCoreNanoSeconds().GetValue()},
	} {
		low, want, high := min(values[0], values[2]), values[1], max(values[0], values[2])
		if want == 0 || low > want+want/20 || high < want-want/20 {
			t.Errorf("%s: got %d and then %d, and the engine has %d", name, values[0], values[2], want)
		}
	}
	written := func(entries []container.BlkioStatEntry) (sum uint64) {
		for _, e := range entries {
			if strings.EqualFold(e.Op, "write") {
				sum += e.Value
			}
		}
		return sum
	}
	if got, want := c.metric(t, p, "container_fs_writes_bytes_total"), written(engine.BlkioStats.IoServiceBytesRecursive); got != want {
		t.Errorf("bytes written to devices: got %d, and the engine has %d", got, want)
	}
	if !cgroup2() {
		return
	}
	files := map[string]string{}
	for _, file := range []string{"memory.swap.current", "cpu.pressure", "memory.pressure", "io.pressure"} {
		files[file] = execOutput(t, c, id, "cat /sys/fs/cgroup/"+file)
	}
	if got := fmt.Sprintln(s.GetSwap().GetSwapUsageBytes().GetValue()); got != files["memory.swap.current"] {
		t.Errorf("swap: got %s, want %s", got, files["memory.swap.current"])
	}
	for name, psi := range map[string]*runtimeapi.PsiStats{"cpu": s.GetCpu().GetPsi(), "memory": s.GetMemory().GetPsi(), "io": s.GetIo().GetPsi()} {
		if _, err := os.Stat("/proc/pressure"); (psi != nil) != (err == nil) {
			t.Errorf("pressure of %s: got %v", name, psi)
		}
	}
	// The quota stalls the container's processes.
	if total := s.GetCpu().GetPsi().GetFull().GetTotal(); s.GetCpu().GetPsi() != nil && (total == 0 || total%1000 != 0) {
		t.Errorf("stalled for %d ns, and the kernel has %s", total, files["cpu.pressure"])
	}
}

// metric returns the sum of a metric of the pod's containers.
func (c *cri) metric(t *testing.T, p *pod, name string) (sum uint64) {
	t.Helper()
	r, err := c.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range r.GetPodMetrics() {
		for _, container := range of.GetContainerMetrics() {
			for _, m := range container.GetMetrics() {
				if of.GetPodSandboxId() == p.id && m.GetName() == name {
					sum += m.GetValue().GetValue()
				}
			}
		}
	}
	return sum
}

func checkStats(t *testing.T, s *runtimeapi.ContainerStats) {
	t.Helper()
	m := s.GetMemory()
	switch {
	case s.GetAttributes().GetMetadata().GetName() != "busy" || s.GetAttributes().GetLabels()["test"] != "busy":
		t.Errorf("attributes: got %v", s.GetAttributes())
	case s.GetCpu().GetTimestamp() <= 0 || m.GetTimestamp() <= 0:
		t.Errorf("times: got %v", s)
	case m.GetUsageBytes().GetValue() == 0 || m.GetWorkingSetBytes().GetValue() > m.GetUsageBytes().GetValue() || m.GetRssBytes().GetValue() == 0 || m.GetPageFaults().GetValue() == 0:
		t.Errorf("memory: got %v", m)
	case m.GetAvailableBytes().GetValue() == 0 || m.GetAvailableBytes().GetValue()+m.GetWorkingSetBytes().GetValue() != 64<<20:
		t.Errorf("available: got %v, want the rest of 64 MiB", m)
	}
}

func TestPodSandboxStats(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) { config.Labels = map[string]string{"test": "stats"} })
	id := startBusy(t, c, p)
	r, err := c.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	s := r.GetStats().GetLinux()
	if r.GetStats().GetAttributes().GetMetadata().GetName() != p.config.GetMetadata().GetName() || r.GetStats().GetAttributes().GetLabels()["test"] != "stats" {
		t.Errorf("attributes: got %v", r.GetStats().GetAttributes())
	}
	if len(s.GetContainers()) != 1 || s.GetContainers()[0].GetAttributes().GetId() != id {
		t.Fatalf("containers: got %v", s.GetContainers())
	}
	own := s.GetContainers()[0]
	if s.GetCpu().GetUsageCoreNanoSeconds().GetValue() < own.GetCpu().GetUsageCoreNanoSeconds().GetValue() ||
		s.GetMemory().GetUsageBytes().GetValue() < own.GetMemory().GetUsageBytes().GetValue() || s.GetProcess().GetProcessCount().GetValue() < 2 {
		t.Errorf("the pod has less than its container: %v", s)
	}
	if s.GetNetwork().GetDefaultInterface().GetName() != "eth0" || s.GetNetwork().GetTimestamp() <= 0 {
		t.Errorf("network: got %v", s.GetNetwork())
	}
	list, err := c.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{"test": "stats"}, Id: p.id}})
	if err != nil || len(list.GetStats()) != 1 || len(list.GetStats()[0].GetLinux().GetContainers()) != 1 {
		t.Errorf("list: got %v, %v", list, err)
	}
	if _, err := c.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id}); status.Code(err) != codes.NotFound {
		t.Errorf("stats of a container as a pod: got %v", err)
	}
}

// TestPodMetrics checks that each metric is described and has a value for each label, and that all metrics of a
// kubelet's cAdvisor are present.
func TestPodMetrics(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	startBusy(t, c, p)
	described, err := c.ListMetricDescriptors(t.Context(), &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]int{}
	for _, d := range described.GetDescriptors() {
		if keys[d.GetName()] != 0 || d.GetHelp() == "" || len(d.GetLabelKeys()) == 0 {
			t.Errorf("descriptor %v", d)
		}
		keys[d.GetName()] = len(d.GetLabelKeys())
	}
	r, err := c.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(r.GetPodMetrics(), func(m *runtimeapi.PodSandboxMetrics) bool { return m.GetPodSandboxId() == p.id })
	if at < 0 || len(r.GetPodMetrics()[at].GetContainerMetrics()) != 1 {
		t.Fatalf("the pod is not among %d", len(r.GetPodMetrics()))
	}
	found := map[string]bool{}
	for _, m := range append(r.GetPodMetrics()[at].GetMetrics(), r.GetPodMetrics()[at].GetContainerMetrics()[0].GetMetrics()...) {
		found[m.GetName()] = true
		if len(m.GetLabelValues()) != keys[m.GetName()] || m.GetValue() == nil {
			t.Errorf("%v: want %d labels and a value", m, keys[m.GetName()])
		}
	}
	// Metrics that depend on the kernel or on block devices may be missing.
	depends := []string{"container_blkio_", "container_fs_reads_", "container_fs_writes_", "container_hugetlb_", "container_pressure_", "container_spec_cpu_quota", "container_ulimits_soft"}
	for name := range keys {
		if !found[name] && !slices.ContainsFunc(depends, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			t.Errorf("%s has no value", name)
		}
	}
	if len(keys) < 54 {
		t.Errorf("got %d metrics, want cAdvisor's 54", len(keys))
	}
}

func TestStreamedLists(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	id := startBusy(t, c, p)
	containers, err := c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := containers.Recv(); err != nil || len(m.GetContainers()) != 1 || m.GetContainers()[0].GetId() != id {
		t.Errorf("containers: got %v, %v", m, err)
	}
	pods, err := c.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{Filter: &runtimeapi.PodSandboxFilter{Id: p.id}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := pods.Recv(); err != nil || len(m.GetPodSandboxes()) != 1 || m.GetPodSandboxes()[0].GetId() != p.id {
		t.Errorf("pods: got %v, %v", m, err)
	}
	images, err := c.image.StreamImages(t.Context(), &runtimeapi.StreamImagesRequest{Filter: &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: testImage}}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := images.Recv(); err != nil || len(m.GetImages()) != 1 {
		t.Errorf("images: got %v, %v", m, err)
	}
	stats, err := c.StreamContainerStats(t.Context(), &runtimeapi.StreamContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: id}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stats.Recv(); err != nil || len(m.GetContainerStats()) != 1 {
		t.Errorf("container stats: got %v, %v", m, err)
	}
	podStats, err := c.StreamPodSandboxStats(t.Context(), &runtimeapi.StreamPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{Id: p.id}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := podStats.Recv(); err != nil || len(m.GetPodSandboxStats()) != 1 {
		t.Errorf("pod stats: got %v, %v", m, err)
	}
}

func TestUnsupportedSayWhy(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	_, container := c.CheckpointContainer(t.Context(), &runtimeapi.CheckpointContainerRequest{})
	_, pod := c.CheckpointPod(t.Context(), &runtimeapi.CheckpointPodRequest{})
	_, restore := c.RestorePod(t.Context(), &runtimeapi.RestorePodRequest{})
	for name, err := range map[string]error{"CheckpointContainer": container, "CheckpointPod": pod, "RestorePod": restore} {
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "the docker engine cannot") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestPodCgroupCountsThePod checks that a pod's stats are those of the kubelet's pod cgroup.
func TestPodCgroupCountsThePod(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	info, err := c.engine.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Remove the cgroups, as the kubelet would. Registered first, so that it runs after the pod is removed.
	var parent string
	t.Cleanup(func() {
		if info.CgroupDriver == "systemd" {
			if out, err := exec.Command("systemctl", "stop", "crishimtest.slice").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
		groups, err := filepath.Glob("/sys/fs/cgroup/*" + parent)
		if err != nil || parent == "" {
			t.Error("nothing is known of the groups:", parent, err)
		}
		if cgroup2() {
			groups = []string{"/sys/fs/cgroup" + parent}
		}
		for _, group := range groups {
			if err := errors.Join(os.Remove(group), os.Remove(filepath.Dir(group))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		parent = "/crishim-test/pod" + config.GetMetadata().GetUid()
		if info.CgroupDriver == "systemd" { // as the kubelet names it
			parent = "/crishimtest.slice/crishimtest-pod" + strings.ReplaceAll(config.GetMetadata().GetUid(), "-", "_") + ".slice"
		}
		config.Linux.CgroupParent = parent
	})
	id := startBusy(t, c, p)
	if s := c.status(t, id); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("got %v", s)
	}
	if cgroup2() {
		for _, id := range []string{p.id, id} {
			if found, err := filepath.Glob("/sys/fs/cgroup" + parent + "/*" + id + "*"); err != nil || len(found) != 1 {
				t.Errorf("the pod's cgroup has %v of %s, %v", found, id, err)
			}
		}
	}
	before, err := c.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	after, err := c.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	used := func(r *runtimeapi.PodSandboxStatsResponse) uint64 {
		return r.GetStats().GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue()
	}
	if used(after) < used(before) {
		t.Errorf("the pod's processor time went from %d to %d when its container was removed", used(before), used(after))
	}
}
