package stats

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/host"
)

// TestMain makes the library accept cgroups that are ordinary files.
func TestMain(m *testing.M) {
	cgroups.TestMode = true
	m.Run()
}

func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var when = time.Unix(1700000000, 0)

func compare(t *testing.T, want, got sample) {
	t.Helper()
	allow := cmp.AllowUnexported(sample{}, cpuSample{}, memorySample{}, swapSample{}, ioSample{}, ioDevice{}, labelled{})
	if diff := cmp.Diff(want, got, allow); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func n(v uint64) *uint64 { return &v }

func TestMeasureV2(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{
		"cgroup.procs":        "10\n11\n",
		"cpu.stat":            "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 7\nnr_throttled 4\nthrottled_usec 6\n",
		"cpu.pressure":        "some avg10=1.50 avg60=0.25 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"memory.current":      "1000\n",
		"memory.peak":         "1500\n",
		"memory.max":          "4096\n",
		"memory.stat":         "anon 100\nfile 200\nkernel 30\nfile_mapped 40\ninactive_file 300\npgfault 8\npgmajfault 2\n",
		"memory.events":       "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n",
		"memory.swap.current": "50\n",
		"memory.swap.max":     "max\n",
		"io.stat":             "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n7:1 \n",
		"pids.current":        "12\n",
		"pids.max":            "max\n",
	})
	compare(t, sample{
		at: when,
		cpu: cpuSample{
			usage: 5000, user: 3000, system: 2000, periods: 7, throttled: 4, throttledTime: 6000,
			pressure: &cgroups.PSIStats{Some: cgroups.PSIData{Total: 9, Avg10: 1.5, Avg60: 0.25}},
		},
		memory: memorySample{
			usage: 1000, workingSet: 700, rss: 100, cache: 200, mapped: 40, limit: 4096, faults: 8, majorFaults: 2,
			maxUsage: 1500, failures: 3, kernel: 30, oomKills: 1,
		},
		swap:      &swapSample{usage: 50, limit: unlimited},
		io:        ioSample{devices: []ioDevice{{device: "8:0", readBytes: 1, writeBytes: 2, reads: 3, writes: 4}}},
		processes: 2, threads: 12,
	}, measure(host.CgroupDirs{"": dir}, everything, when))
	compareUsage(t, host.CgroupDirs{"": dir})
}

func TestMeasureV1(t *testing.T) {
	t.Parallel()
	huge := map[string]string{}
	var hugepages, hugepagesMax []labelled
	for _, size := range slices.Sorted(slices.Values(cgroups.HugePageSizes())) { // sizes of this host
		huge["hugetlb."+size+".usage_in_bytes"] = "4096\n"
		huge["hugetlb."+size+".max_usage_in_bytes"] = "8192\n"
		huge["hugetlb."+size+".failcnt"] = "0\n"
		hugepages = append(hugepages, labelled{4096, []string{size}})
		hugepagesMax = append(hugepagesMax, labelled{8192, []string{size}})
	}
	dirs := host.CgroupDirs{
		"hugetlb": files(t, huge),
		"cpuacct": files(t, map[string]string{"cpuacct.usage": "5000\n", "cpuacct.stat": "user 3\nsystem 2\n", "cpuacct.usage_percpu": "2000 3000\n"}),
		"cpu":     files(t, map[string]string{"cpu.stat": "nr_periods 7\nnr_throttled 4\nthrottled_time 6000\n"}),
		"memory": files(t, map[string]string{
			"cgroup.procs":                    "10\n",
			"memory.usage_in_bytes":           "1000\n",
			"memory.max_usage_in_bytes":       "1500\n",
			"memory.limit_in_bytes":           "9223372036854771712\n",
			"memory.memsw.usage_in_bytes":     "1050\n",
			"memory.memsw.limit_in_bytes":     "9223372036854771712\n",
			"memory.failcnt":                  "3\n",
			"memory.memsw.max_usage_in_bytes": "1600\n",
			"memory.memsw.failcnt":            "0\n",
			"memory.use_hierarchy":            "1\n",
			"memory.stat":                     "total_rss 100\ntotal_cache 200\ntotal_mapped_file 40\ntotal_inactive_file 1300\ntotal_pgfault 8\ntotal_pgmajfault 2\n",
			"memory.oom_control":              "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		}),
		"blkio": files(t, map[string]string{
			"blkio.throttle.io_service_bytes_recursive": "8:0 Read 1\n8:0 Write 2\n8:0 Sync 0\nTotal 3\n",
			"blkio.throttle.io_serviced_recursive":      "8:0 Read 3\n8:0 Write 4\n",
		}),
		"pids": files(t, map[string]string{"pids.current": "12\n", "pids.max": "100\n"}),
	}
	compare(t, sample{
		at:  when,
		cpu: cpuSample{usage: 5000, user: 30000000, system: 20000000, periods: 7, throttled: 4, throttledTime: 6000},
		memory: memorySample{
			usage: 1000, rss: 100, cache: 200, mapped: 40, limit: unlimited, faults: 8, majorFaults: 2,
			maxUsage: 1500, failures: 3, oomKills: 1, // inactive exceeds usage: the files were read at different times
		},
		swap:      &swapSample{usage: 50, limit: unlimited},
		io:        ioSample{devices: []ioDevice{{device: "8:0", readBytes: 1, writeBytes: 2, reads: 3, writes: 4}}},
		processes: 1, threads: 12, maxThreads: 100, hugepages: hugepages, hugepagesMax: hugepagesMax,
	}, measure(dirs, everything, when))
	compareUsage(t, dirs)
}

// TestMeasureV1WithoutAFile covers the root of a hierarchy, which lacks some files and may contain a container.
func TestMeasureV1WithoutAFile(t *testing.T) {
	t.Parallel()
	m := measure(host.CgroupDirs{
		"pids":    t.TempDir(),
		"cpuacct": files(t, map[string]string{"cpuacct.usage": "5000\n", "cpuacct.stat": "user 3\nsystem 2\n", "cpuacct.usage_percpu": "5000\n"}),
		"memory":  files(t, map[string]string{"memory.stat": "total_rss 100\n"}),
	}, everything, when)
	if m.cpu.usage != 5000 || m.memory.rss != 100 {
		t.Errorf("got %+v", m)
	}
}

// compareUsage checks that reading some files gives the same values as reading all.
func compareUsage(t *testing.T, dirs host.CgroupDirs) {
	t.Helper()
	type numbers struct {
		cpu, processes uint64
		stats          *runtimeapi.ContainerStats
	}
	of := func(what cgroups.Controller) numbers {
		m := measure(dirs, what, when)
		return numbers{m.cpu.usage, m.processes, &runtimeapi.ContainerStats{
			Cpu: &runtimeapi.CpuUsage{Psi: psi(m.cpu.pressure)}, Memory: memoryUsage(m), Swap: swapUsage(m), Io: ioUsage(m),
		}}
	}
	if diff := cmp.Diff(of(everything), of(shown), cmp.AllowUnexported(numbers{}), protocmp.Transform()); diff != "" {
		t.Errorf("some files tell something else than all (-all +some):\n%s", diff)
	}
}

func TestMeasureNothing(t *testing.T) {
	t.Parallel()
	empty := sample{at: when, memory: memorySample{limit: unlimited}}
	for _, what := range []cgroups.Controller{shown, everything} {
		compare(t, empty, measure(host.CgroupDirs{"": t.TempDir()}, what, when))
		compare(t, empty, measure(host.CgroupDirs{"memory": t.TempDir()}, what, when))
	}
}

// TestFromEngine expects the same values from the API of a remote engine.
func TestFromEngine(t *testing.T) {
	t.Parallel()
	var a container.StatsResponse
	a.Read = when
	a.CPUStats.CPUUsage.TotalUsage = 5000
	a.MemoryStats.Usage = 1000
	a.MemoryStats.Stats = map[string]uint64{"inactive_file": 300, "anon": 100, "file": 200, "file_mapped": 40, "pgfault": 8, "pgmajfault": 2}
	a.PidsStats.Current, a.PidsStats.Limit = 3, 1<<64-1 // no limit on cgroup v2
	a.BlkioStats.IoServiceBytesRecursive = []container.BlkioStatEntry{{Major: 8, Op: "read", Value: 1}, {Major: 8, Op: "write", Value: 2}}
	compare(t, sample{
		at: when, cpu: cpuSample{usage: 5000},
		memory: memorySample{usage: 1000, workingSet: 700, rss: 100, cache: 200, mapped: 40, limit: unlimited, faults: 8, majorFaults: 2},
		io:     ioSample{devices: []ioDevice{{device: "8:0", readBytes: 1, writeBytes: 2}}}, processes: 3, threads: 3,
	}, fromEngine(a, 0))
}

func TestNetworkUsage(t *testing.T) {
	t.Parallel()
	u := networkUsage([]procfs.NetDevLine{{Name: "eth0", RxBytes: 100, RxErrors: 1, TxBytes: 200, TxErrors: 3}, {Name: "net1"}}, when)
	want := &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: value(100), RxErrors: value(1), TxBytes: value(200), TxErrors: value(3)}
	if diff := cmp.Diff(want, u.GetDefaultInterface(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(u.GetInterfaces()) != 1 || u.GetInterfaces()[0].GetName() != "net1" {
		t.Errorf("got %v", u)
	}
	if networkUsage(nil, when) != nil {
		t.Error("usage of no interface")
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	var r rates
	add := func(after time.Duration, usage uint64) *uint64 { return r.add("a", when.Add(after), usage) }
	if got := add(0, 100); got != nil {
		t.Errorf("first: got %d", *got)
	}
	if got := add(time.Millisecond, 200); got != nil {
		t.Errorf("too early: got %d", *got)
	}
	if got := add(2*time.Second, 300); got == nil || *got != 100 {
		t.Errorf("later: got %v, want 100 per second", got)
	}
	if got := add(2*time.Second+time.Millisecond, 400); got == nil || *got != 100 {
		t.Errorf("right after: got %v, want the last one", got)
	}
	if got := add(9*time.Second, 1); got != nil {
		t.Errorf("a restarted counter: got %d", *got)
	}
	r.keep(func(string) bool { return false })
	if len(r.last) != 0 {
		t.Errorf("kept %v", r.last)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	s := newSizes()
	defer s.close()
	of := func(dir string) (layerSize, bool) {
		return s.of(dir, func(ctx context.Context) (layerSize, error) { return walk(ctx, dir) }, time.Now().Add(sizeBudget))
	}
	deadline := time.Now().Add(time.Minute)
	for {
		size, ok := of(dir)
		if ok {
			if size.bytes < 100<<10 || size.bytes >= 200<<10 || size.inodes != 2 {
				t.Errorf("got %+v, want one file and the directory", size)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no size after a minute")
		}
	}
	if _, ok := of(filepath.Join(dir, "none")); ok {
		t.Error("a size of nothing")
	}
	s.close()
	if _, ok := of(t.TempDir()); ok {
		t.Error("a walk after the end")
	}
}

func TestDescriptors(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, d := range descriptors() {
		if seen[d.GetName()] || !strings.HasPrefix(d.GetName(), "container_") || d.GetHelp() == "" || len(d.GetLabelKeys()) < len(baseLabels) {
			t.Errorf("got %v", d)
		}
		seen[d.GetName()] = true
	}
	full := &containerView{
		m: sample{
			threads: 1, io: ioSample{devices: []ioDevice{{device: "8:0"}}, pressure: &cgroups.PSIStats{}},
			cpu: cpuSample{pressure: &cgroups.PSIStats{}}, memory: memorySample{pressure: &cgroups.PSIStats{}},
			hugepages: []labelled{{1, []string{"2MB"}}}, hugepagesMax: []labelled{{1, []string{"2MB"}}},
		},
		spec: container.Resources{CPUQuota: 1}, fs: &fsView{}, files: n(1), sockets: n(1), openFiles: n(1),
	}
	for _, m := range containerMetrics() {
		values := m.values(full)
		if len(values) == 0 {
			t.Errorf("%s: no value", m.name)
		}
		for _, v := range values {
			if len(v.labels) != len(m.labels) {
				t.Errorf("%s: got labels %q for keys %q", m.name, v.labels, m.labels)
			}
		}
		m.values(&containerView{}) // must not panic for an empty view
	}
}

func TestRatesWhenTheClockIsPutBack(t *testing.T) {
	t.Parallel()
	var r rates
	r.add("a", when, 100)
	r.add("a", when.Add(-time.Hour), 200)
	if got := r.add("a", when.Add(2*time.Second-time.Hour), 400); got == nil || *got != 100 {
		t.Errorf("got %v, want 100 per second", got)
	}
}

// A hanging disk walk or engine occupies a slot for a limited time.
func TestSizesEndWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSizes()
		defer s.close()
		hangs := func(ctx context.Context) (layerSize, error) {
			<-ctx.Done()
			return layerSize{}, ctx.Err()
		}
		for i := range sizeWalks {
			s.begin(strconv.Itoa(i), hangs)
		}
		synctest.Wait()
		now := func(context.Context) (layerSize, error) { return layerSize{bytes: 7, at: time.Now()}, nil }
		if size, ok := s.of("one", now, time.Now().Add(2*findTime)); !ok || size.bytes != 7 {
			t.Errorf("got %v, %v", size, ok)
		}
	})
}
