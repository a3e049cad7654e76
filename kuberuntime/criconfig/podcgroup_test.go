package criconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/crishim/crishim/kuberuntime/manifest"
)

// TestPodResources covers a pod's cgroup, and what its resources mean for containers without resources of their own.
func TestPodResources(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resources string
		v1, v2    []string // the values of its files
		qos       v1.PodQOSClass
		container [4]int64 // of the second container: shares, quota, memory, oom score
	}{
		"limits": {
			"{limits: {cpu: 2, memory: 512Mi}}", []string{"536870912", "2048", "100000", "200000"}, []string{"536870912", "174", "200000 100000"},
			v1.PodQOSBurstable, [4]int64{2048, 200000, 512 << 20, 999},
		},
		"the containers' requests and limits": {
			"{limits: {cpu: 1, memory: 100Mi}}", []string{"104857600", "1024", "100000", "100000"}, []string{"104857600", "100", "100000 100000"},
			v1.PodQOSGuaranteed, [4]int64{1024, 100000, 100 << 20, -997},
		},
		"requests": {
			"{requests: {cpu: 500m, memory: 612Mi}}", []string{"-1", "512", "100000", "-1"}, []string{"max", "59", "max 100000"},
			v1.PodQOSBurstable, [4]int64{2, 0, 0, 750},
		},
		"both": {
			"{requests: {cpu: 1, memory: 100Mi}, limits: {memory: 1Gi}}", []string{"1073741824", "1024", "100000", "-1"}, []string{"1073741824", "100", "max 100000"},
			v1.PodQOSBurstable, [4]int64{2, 0, 1 << 30, 999},
		},
		"a limit without a request, which is the containers'": {
			"{limits: {memory: 1Gi}}", []string{"1073741824", "2", "100000", "-1"}, []string{"1073741824", "1", "max 100000"},
			v1.PodQOSBurstable, [4]int64{2, 0, 1 << 30, 999},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := parse(t, "  resources: "+c.resources+`
  containers:
  - {name: own, image: busybox, resources: {limits: {memory: 100Mi}}}
  - {name: main, image: busybox}
`)
			p.UID = "uid"
			host := Host{Memory: 1 << 30}
			for v2, want := range map[bool][]string{false: c.v1, true: c.v2} {
				host.CgroupV2 = v2
				var got []string
				for _, file := range PodCgroup(p, host) {
					got = append(got, file.Value)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("version 2 %v: %s", v2, diff)
				}
			}
			if got := QoS(p); got != c.qos {
				t.Errorf("got %s", got)
			}
			r := resources(p, &p.Spec.Containers[1], host)
			if diff := cmp.Diff(c.container, [4]int64{r.GetCpuShares(), r.GetCpuQuota(), r.GetMemoryLimitInBytes(), r.GetOomScoreAdj()}); diff != "" {
				t.Error(diff)
			}
			if own := resources(p, &p.Spec.Containers[0], host).GetMemoryLimitInBytes(); own != 100<<20 {
				t.Errorf("the container's own limit is %d", own)
			}
			if got := (&Generator{}).Sandbox(p, 0).GetLinux().GetCgroupParent(); got != "/crishim/poduid" {
				t.Errorf("got the parent %q", got)
			}
		})
	}
}

// TestResourceFieldsOfPodLimits: a limit in a variable is the container's, else the pod's, else the host's capacity.
func TestResourceFieldsOfPodLimits(t *testing.T) {
	t.Parallel()
	p, _ := parse(t, `
  resources: {limits: {memory: 512Mi}}
  containers:
  - {name: own, image: busybox, resources: {limits: {memory: 100Mi}}}
  - {name: main, image: busybox}
`)
	for want, ref := range map[string]v1.ResourceFieldSelector{
		"100": {ContainerName: "own", Resource: "limits.memory"}, "512": {ContainerName: "main", Resource: "limits.memory"},
		"4": {ContainerName: "main", Resource: "limits.cpu"}, "0": {ContainerName: "main", Resource: "requests.memory"},
	} {
		if ref.Resource != "limits.cpu" {
			ref.Divisor = resource.MustParse("1Mi")
		}
		got, err := Resource(p, manifest.Container(p, ref.ContainerName), Host{CPUs: 4, Memory: 8 << 30}, &ref)
		if err != nil || got != want {
			t.Errorf("%s of %s: got %s, %v, want %s", ref.Resource, ref.ContainerName, got, err, want)
		}
	}
}
