package criconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMemoryOfCgroups covers the swap limit and the OOM group of a container.
func TestMemoryOfCgroups(t *testing.T) {
	t.Parallel()
	const burstable = "{requests: {memory: 256Mi}, limits: {memory: 512Mi}}"
	v2 := Host{CgroupV2: true, SwapControl: true, Memory: 1 << 30, Swap: 2 << 30}
	limited, single, noControl := v2, v2, v2
	limited.LimitedSwap, single.SingleProcessOOMKill, noControl.SwapControl = true, true, false
	type files = map[string]string
	noSwap := files{"memory.oom.group": "1", "memory.swap.max": "0"}
	for name, c := range map[string]struct {
		host            Host
		resources, more string
		swap            int64 // memory and swap together, for cgroup v1
		want            files
	}{
		"v1 with a limit":              {Host{SwapControl: true}, burstable, "", 512 << 20, nil},
		"v1 without a limit":           {Host{SwapControl: true}, "{}", "", 0, nil},
		"v1 that cannot limit swap":    {Host{}, burstable, "", 0, nil},
		"v2":                           {v2, burstable, "", 0, noSwap},
		"v2 without a limit":           {v2, "{}", "", 0, noSwap},
		"v2 that cannot limit swap":    {noControl, burstable, "", 0, files{"memory.oom.group": "1"}},
		"v2, one process":              {single, burstable, "", 0, files{"memory.swap.max": "0"}},
		"limited":                      {limited, burstable, "", 0, files{"memory.oom.group": "1", "memory.swap.max": "536870912"}},
		"limited, no limit of memory":  {limited, "{requests: {memory: 1Mi}}", "", 0, files{"memory.oom.group": "1", "memory.swap.max": "2097152"}},
		"limited, no request":          {limited, "{requests: {cpu: 1}}", "", 0, noSwap},
		"limited, the request is all":  {limited, "{limits: {memory: 1Mi}}", "", 0, noSwap},
		"limited, BestEffort":          {limited, "{}", "", 0, noSwap},
		"limited, Guaranteed":          {limited, "{limits: {cpu: 1, memory: 1Mi}}", "", 0, noSwap},
		"limited, critical":            {limited, burstable, "priorityClassName: system-cluster-critical", 0, noSwap},
		"limited, more than there is":  {limited, "{requests: {memory: 2Gi}}", "", 0, noSwap},
		"limited, memory is not known": {Host{CgroupV2: true, SwapControl: true, LimitedSwap: true, Swap: 1}, burstable, "", 0, noSwap},
	} {
		p, _ := parse(t, "  containers: [{name: main, image: busybox, resources: "+c.resources+"}]\n  "+c.more)
		got := resources(p, &p.Spec.Containers[0], c.host)
		if diff := cmp.Diff(c.want, got.GetUnified()); diff != "" || got.GetMemorySwapLimitInBytes() != c.swap {
			t.Errorf("%s: got swap %d, %s", name, got.GetMemorySwapLimitInBytes(), diff)
		}
	}
}

func TestSwapControl(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files       []string
		own         string
		v2, control bool
	}{
		"nothing":              {nil, "", false, false},
		"v1":                   {[]string{"memory/memory.memsw.limit_in_bytes"}, "", false, true},
		"v1 without swap":      {[]string{"memory/memory.limit_in_bytes"}, "", false, false},
		"v2":                   {[]string{"cgroup.controllers", "a/b/memory.swap.max"}, "0::/a/b\n", true, true},
		"v2 without swap":      {[]string{"cgroup.controllers", "a/b/memory.max"}, "0::/a/b\n", true, false},
		"v2 from its root":     {[]string{"cgroup.controllers"}, "0::/\n", true, false},
		"v2 without own group": {[]string{"cgroup.controllers"}, "", true, false},
	} {
		root := t.TempDir()
		own := filepath.Join(root, "own")
		if err := os.WriteFile(own, []byte(c.own), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, file := range c.files {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if v2, control := swapControl(root, own); v2 != c.v2 || control != c.control {
			t.Errorf("%s: got %v and %v", name, v2, control)
		}
	}
}
