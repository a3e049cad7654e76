package diagnose

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// hostWith is a host with these files.
func hostWith(t *testing.T, files map[string]string) Host {
	t.Helper()
	h := Host{Root: t.TempDir()}
	for path, text := range files {
		path = h.path(path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// TestKernelLog: only the kernel's own records count, not records of processes or text in process names.
func TestKernelLog(t *testing.T) {
	t.Parallel()
	constraint := func(group, task string) string {
		return "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=" + id + ",mems_allowed=0,oom_memcg=" + group + ",task_memcg=" + group + ",task=" + task + ",pid=7,uid=0"
	}
	const killed = "Memory cgroup out of memory: Killed process 7 (%s) total-vm:9kB, anon-rss:100kB, file-rss:4kB, shmem-rss:28kB, UID:0 pgtables:44kB oom_score_adj:0"
	group := "/docker/" + id
	record := func(priority int, at string, lines ...string) (text string) {
		for _, line := range lines {
			text += fmt.Sprintf("%d,1,%s,-;%s\n", priority, at, line)
		}
		return text
	}
	usage := "memory: usage 16384kB, limit 16384kB, failcnt 63"
	for name, c := range map[string]struct {
		log  string
		want []oomKill
	}{
		"a limit": {record(6, "2000000", "sh invoked oom-killer: gfp_mask=0xcc0", usage, constraint(group, "sh"), fmt.Sprintf(killed, "sh")), []oomKill{
			{At: time.Unix(102, 0), Process: "sh", Pid: 7, Group: group, LimitOf: group, Usage: 16 << 20, Limit: 16 << 20, Resident: 128 << 10},
		}},
		"all of its cgroup": {record(6, "2000000", usage, constraint(group, "sh"), fmt.Sprintf(killed, "sh"), "Tasks in "+group+" are going to be killed due to memory.oom.group set",
			fmt.Sprintf(killed, "sh"), strings.Replace(fmt.Sprintf(killed, "sleep"), "7", "8", 1)), []oomKill{
			{At: time.Unix(102, 0), Process: "sh", Pid: 7, Group: group, LimitOf: group, Usage: 16 << 20, Limit: 16 << 20, Resident: 128 << 10, All: true},
		}},
		"all of its cgroup, from a child": {record(6, "2000000", usage, strings.Replace(constraint(group, "sh"), "task_memcg="+group, "task_memcg="+group+"/init", 1), fmt.Sprintf(killed, "sh"), "Tasks in "+group+" are going to be killed due to memory.oom.group set"), []oomKill{
			{At: time.Unix(102, 0), Process: "sh", Pid: 7, Group: group + "/init", LimitOf: group, Usage: 16 << 20, Limit: 16 << 20, Resident: 128 << 10, All: true},
		}},
		"all of a child": {record(6, "2000000", usage, constraint(group+"/init", "sh"), fmt.Sprintf(killed, "sh"), "Tasks in "+group+"/init are going to be killed due to memory.oom.group set"), []oomKill{
			{At: time.Unix(102, 0), Process: "sh", Pid: 7, Group: group + "/init", LimitOf: group + "/init", Usage: 16 << 20, Limit: 16 << 20, Resident: 128 << 10},
		}},
		"an older kernel": {record(6, "0", "Task in "+group+" killed as a result of limit of /docker", "Memory cgroup out of memory: Killed process 9 (a b)"), []oomKill{
			{At: time.Unix(100, 0), Process: "a b", Pid: 9, Group: group, LimitOf: "/docker"},
		}},
		"the whole node": {record(3, "0", "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg="+group+",task=sh,pid=7,uid=0",
			strings.Replace(fmt.Sprintf(killed, "sh"), "Memory cgroup out", "Out", 1)), []oomKill{{At: time.Unix(100, 0), Process: "sh", Pid: 7, Group: group, Resident: 128 << 10}}},
		"written by a process":     {record(14, "0", constraint(group, "sh"), fmt.Sprintf(killed, "sh")), nil},
		"half of it":               {record(6, "0", fmt.Sprintf(killed, "sh")), nil},
		"another process":          {record(6, "0", strings.Replace(constraint(group, "sh"), "pid=7", "pid=8", 1), fmt.Sprintf(killed, "sh")), nil},
		"a cgroup with a comma":    {record(6, "0", constraint("/docker/"+otherID+"/x,task_memcg=/docker/"+id, "sh"), fmt.Sprintf(killed, "sh")), nil},
		"a name with all of it":    {record(6, "0", "x oom-kill:constraint=CONSTRAINT_MEMCG"), nil},
		"nothing, and broken text": {";\n1,2\nx,y,z;oom-kill:\n", nil},
	} {
		got, err := hostWith(t, map[string]string{"/dev/kmsg": c.log}).kernelKills(time.Unix(100, 0))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := hostWith(t, nil).kernelKills(time.Time{}); err == nil {
		t.Error("a kernel log that is not there was read")
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	v1 := "/sys/fs/cgroup/memory/docker/" + id
	v2 := "/sys/fs/cgroup/system.slice/docker-" + id + ".scope"
	for name, c := range map[string]struct {
		files map[string]string
		want  *memoryUse
	}{
		"version 1": {map[string]string{
			"/proc/7/cgroup": "5:memory:/docker/" + id + "\n1:cpu:/docker/" + id + "\n", v1 + "/memory.usage_in_bytes": "10\n", v1 + "/memory.max_usage_in_bytes": "20\n",
			v1 + "/memory.limit_in_bytes": "9223372036854771712\n", v1 + "/memory.failcnt": "4\n", v1 + "/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		}, &memoryUse{Peak: 20, Kills: 2}},
		"version 2": {map[string]string{
			"/proc/7/cgroup": "0::/system.slice/docker-" + id + ".scope\n", "/sys/fs/cgroup/cgroup.controllers": "memory", v2 + "/memory.current": "10\n",
			v2 + "/memory.peak": "20\n", v2 + "/memory.max": "max\n", v2 + "/memory.events": "low 0\nmax 4\noom 3\noom_kill 2\n",
		}, &memoryUse{Peak: 20, Kills: 2}},
		"another's process": {map[string]string{"/proc/7/cgroup": "5:memory:/docker/" + otherID + "\n"}, nil},
		"no process":        {nil, nil},
	} {
		if diff := cmp.Diff(c.want, hostWith(t, c.files).memory(7, id)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPaused(t *testing.T) {
	t.Parallel()
	v1 := map[string]string{"/proc/7/cgroup": "5:memory:/docker/" + id + "\n4:freezer:/docker/" + id + "\n"}
	v2 := map[string]string{"/proc/7/cgroup": "0::/docker/" + id + "\n", "/sys/fs/cgroup/cgroup.controllers": "memory"}
	for _, c := range []struct {
		name  string
		files map[string]string
		state string // its file, and what is in it
		text  string
		want  bool
	}{
		{"version 1, frozen", v1, "/sys/fs/cgroup/freezer/docker/" + id + "/freezer.state", "FROZEN\n", true},
		{"version 1, not", v1, "/sys/fs/cgroup/freezer/docker/" + id + "/freezer.state", "THAWED\n", false},
		{"version 2, frozen", v2, "/sys/fs/cgroup/docker/" + id + "/cgroup.events", "populated 1\nfrozen 1\n", true},
		{"version 2, not", v2, "/sys/fs/cgroup/docker/" + id + "/cgroup.events", "populated 1\nfrozen 0\n", false},
		{"no such file", v1, "/none", "", false},
		{"another's process", map[string]string{"/proc/7/cgroup": "4:freezer:/docker/" + otherID + "\n"}, "/sys/fs/cgroup/freezer/docker/" + otherID + "/freezer.state", "FROZEN\n", false},
	} {
		files := maps.Clone(c.files)
		files[c.state] = c.text
		if got := hostWith(t, files).paused(7, id); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	h := hostWith(t, map[string]string{"/var/lib/cni/networks/pods/10.0.0.2": "x", "/var/lib/cni/networks/pods/10.0.0.3": "y", "/var/lib/cni/networks/pods/lock": ""})
	if diff := cmp.Diff(map[string]int{"pods": 2}, h.leases()); diff != "" {
		t.Error(diff)
	}
}

// TestFilesystemsOnce: two paths on one filesystem are measured once, despite concurrent writes.
func TestFilesystemsOnce(t *testing.T) {
	t.Parallel()
	a := t.TempDir()
	b := filepath.Join(a, "b")
	if err := os.Mkdir(b, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := (Host{}).filesystems("", filepath.Join(a, "none"), a, b); len(got) != 1 || got[0].Path != a || got[0].Space <= 0 {
		t.Errorf("got %+v", got)
	}
}

// TestHiddenHost: in a container without the host's files, the container's own files are not used.
func TestHiddenHost(t *testing.T) {
	t.Parallel()
	h := hostWith(t, map[string]string{
		"/var/lib/cni/networks/pods/10.0.0.2": "x", "/proc/7/cgroup": "0::/docker/" + id + "\n", "/sys/fs/cgroup/cgroup.controllers": "memory",
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	wanted := func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		port := int32(listener.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert,gosec // it is one
		p.Pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port}}
	}
	seen := func() string {
		f := recorded(1, wanted)
		(&Collector{o: Options{Host: h}}).ports(f)
		return fmt.Sprint(h.memory(7, id) != nil, len(h.leases()), len(f.Pods[0].Ports), len(h.filesystems("/")), h.exists("/none"))
	}
	if got := seen(); got != "true 1 1 1 false" {
		t.Errorf("seen: %s", got)
	}
	h.Hidden = true
	if got := seen(); got != "false 0 0 0 true" {
		t.Errorf("hidden: %s", got)
	}
}
