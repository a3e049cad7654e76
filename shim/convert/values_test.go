package convert

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/google/go-cmp/cmp"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestEnv(t *testing.T) {
	t.Parallel()
	if got, err := Env(nil); len(got) != 0 || err != nil {
		t.Errorf("nil: got %q, %v", got, err)
	}
	got, err := Env([]*runtimeapi.KeyValue{{Key: "A", Value: []byte("b=c\n")}, {Key: "E"}})
	if err != nil || !cmp.Equal(got, []string{"A=b=c\n", "E="}) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []*runtimeapi.KeyValue{nil, {Key: "A=B"}, {Key: "A\x00"}, {Key: "A", Value: []byte("\x00")}} {
		_, err := Env([]*runtimeapi.KeyValue{bad})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: got %v", bad, err)
		} else if !strings.Contains(err.Error(), " has ") {
			t.Errorf("%v: %v says nothing of why", bad, err)
		}
	}
}

// TestSignalPairs checks the round trip of all CRI signals through the engine's form. Three signals have a second name.
func TestSignalPairs(t *testing.T) {
	t.Parallel()
	for value, name := range runtimeapi.Signal_name {
		s := runtimeapi.Signal(value)
		text, err := EngineSignal(s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := s
		if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
			want = runtimeapi.Signal_SIGNAL_SIGTERM
		}
		if got := Signal(text); got != want {
			t.Errorf("%s became %q and then %s", name, text, got)
		}
	}
	if _, err := EngineSignal(999); !errdefs.IsInvalidArgument(err) {
		t.Errorf("unknown: got %v", err)
	}
	for text, want := range map[string]runtimeapi.Signal{
		"15": runtimeapi.Signal_SIGNAL_SIGTERM, "term": runtimeapi.Signal_SIGNAL_SIGTERM, "9": runtimeapi.Signal_SIGNAL_SIGKILL,
		"SIGRTMIN+3": runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3, "37": runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3, "RTMAX-1": runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS1,
		"34": runtimeapi.Signal_SIGNAL_SIGRTMIN, "64": runtimeapi.Signal_SIGNAL_SIGRTMAX, "63": runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS1,
		"65": 0, "0": 0, "-3": 0, "SIGNONE": 0,
	} {
		if got := Signal(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	got, err := Devices([]*runtimeapi.Device{{HostPath: "/dev/a"}, {HostPath: "/dev/b", ContainerPath: "/dev/c", Permissions: "r"}})
	want := []container.DeviceMapping{
		{PathOnHost: "/dev/a", PathInContainer: "/dev/a", CgroupPermissions: "rwm"},
		{PathOnHost: "/dev/b", PathInContainer: "/dev/c", CgroupPermissions: "r"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []*runtimeapi.Device{nil, {HostPath: "/dev/a", Permissions: "x"}} {
		if _, err := Devices([]*runtimeapi.Device{bad}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: got %v", bad, err)
		}
	}
	requests, err := CDIDevices([]*runtimeapi.CDIDevice{{Name: "v.com/gpu=0"}}, map[string]string{
		"cdi.k8s.io/plugin_1": "v.com/gpu=1,v.com/gpu=0", "other": "v.com/gpu=2",
	})
	if err != nil || !cmp.Equal(requests, []container.DeviceRequest{{Driver: "cdi", DeviceIDs: []string{"v.com/gpu=0", "v.com/gpu=1"}}}) {
		t.Errorf("got %v, %v", requests, err)
	}
	if got, err := CDIDevices(nil, map[string]string{"other": "v.com/gpu=2"}); got != nil || err != nil {
		t.Errorf("none: got %v, %v", got, err)
	}
	if _, err := CDIDevices([]*runtimeapi.CDIDevice{{Name: "gpu"}}, nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no CDI name: got %v", err)
	}
	if _, err := CDIDevices(nil, map[string]string{"cdi.k8s.io/x": ""}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an empty annotation: got %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	const pod = "container:s"
	node := &runtimeapi.NamespaceOption{Network: 2, Pid: 2, Ipc: 2}
	for name, tc := range map[string]struct {
		o    *runtimeapi.NamespaceOption
		pod  *runtimeapi.NamespaceOption
		want container.HostConfig
		bad  func(error) bool
	}{
		"nil is the pod's": {nil, nil, container.HostConfig{NetworkMode: pod, IpcMode: pod, PidMode: pod}, nil},
		"own pid":          {&runtimeapi.NamespaceOption{Pid: 1}, nil, container.HostConfig{NetworkMode: pod, IpcMode: pod}, nil},
		"the node's": {node, node,
			container.HostConfig{NetworkMode: pod, UTSMode: "host", IpcMode: "host", PidMode: "host"}, nil},
		"the node's in a pod that has its own": {node, nil,
			container.HostConfig{NetworkMode: "host", UTSMode: "host", IpcMode: "host", PidMode: "host"}, nil},
		"the pod's, which are the node's": {&runtimeapi.NamespaceOption{Pid: 1}, node,
			container.HostConfig{NetworkMode: pod, IpcMode: "host"}, nil},
		"a target":         {&runtimeapi.NamespaceOption{Pid: 3, TargetId: "x"}, nil, container.HostConfig{NetworkMode: pod, IpcMode: pod, PidMode: "container:t"}, nil},
		"own network":      {&runtimeapi.NamespaceOption{Network: 1}, nil, container.HostConfig{}, errdefs.IsInvalidArgument},
		"unknown ipc":      {&runtimeapi.NamespaceOption{Ipc: 9}, nil, container.HostConfig{}, errdefs.IsInvalidArgument},
		"unknown pid":      {&runtimeapi.NamespaceOption{Pid: 9}, nil, container.HostConfig{}, errdefs.IsInvalidArgument},
		"user namespace":   {&runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{}}, nil, container.HostConfig{}, errdefs.IsNotImplemented},
		"the node's users": {&runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{Mode: 2}}, nil, container.HostConfig{NetworkMode: pod, IpcMode: pod, PidMode: pod}, nil},
	} {
		var got container.HostConfig
		err := Namespaces(&got, tc.o, Pod{"s", tc.pod}, "t")
		if tc.bad != nil {
			if !tc.bad(err) {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if err := Namespaces(&container.HostConfig{}, &runtimeapi.NamespaceOption{Pid: 3}, Pod{ID: "s"}, ""); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no target: got %v", err)
	}
}

func TestCgroupParent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ parent, driver, want string }{
		{"", "systemd", ""},
		{"/kubepods/pod1", "cgroupfs", "/kubepods/pod1"},
		{"/kubepods.slice/kubepods-pod1.slice", "systemd", "kubepods-pod1.slice"},
		{"/kubepods.slice", "", "/kubepods.slice"},
	} {
		if got, err := CgroupParent(tc.parent, tc.driver); got != tc.want || err != nil {
			t.Errorf("%v: got %q, %v", tc, got, err)
		}
	}
	for _, driver := range []string{"cgroupfs", "systemd"} {
		for _, parent := range []string{"/kubepods/../../other.slice", "../x.slice", "/a/..", "/a\x00/x.slice"} {
			if got, err := CgroupParent(parent, driver); !errdefs.IsInvalidArgument(err) {
				t.Errorf("%q with %s: got %q, %v", parent, driver, got, err)
			}
		}
	}
	if got, err := CgroupParent("/kubepods/pod..1", "cgroupfs"); got != "/kubepods/pod..1" || err != nil {
		t.Errorf("dots inside a name: got %q, %v", got, err)
	}
	if _, err := CgroupParent("/kubepods/pod1", "systemd"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no slice: got %v", err)
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	pids, noPids := int64(5), int64(-1)
	for name, tc := range map[string]struct {
		in   *runtimeapi.LinuxContainerResources
		want container.Resources
	}{
		"nil":               {nil, container.Resources{}},
		"no swap by itself": {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 10}, container.Resources{Memory: 10, MemorySwap: 10}},
		"swap":              {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 10, MemorySwapLimitInBytes: 15}, container.Resources{Memory: 10, MemorySwap: 15}},
		"endless swap":      {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 10, MemorySwapLimitInBytes: -1}, container.Resources{Memory: 10, MemorySwap: -1}},
		"swap the new way": {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 10, Unified: map[string]string{"memory.swap.max": "7", "pids.max": "5"}},
			container.Resources{Memory: 10, MemorySwap: 17, PidsLimit: &pids}},
		"swap without a limit of memory": {&runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.swap.max": "0"}}, container.Resources{}},
		"no bounds": {&runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.swap.max": "max", "pids.max": "max"}},
			container.Resources{MemorySwap: -1, PidsLimit: &noPids}},
		"processor": {&runtimeapi.LinuxContainerResources{CpuPeriod: 1, CpuQuota: -1, CpuShares: 3, CpusetCpus: "0-1", CpusetMems: "0"},
			container.Resources{CPUPeriod: 1, CPUQuota: -1, CPUShares: 3, CpusetCpus: "0-1", CpusetMems: "0"}},
	} {
		got, err := Resources(tc.in)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for _, bad := range []*runtimeapi.LinuxContainerResources{
		{MemoryLimitInBytes: 10, MemorySwapLimitInBytes: 5},
		{Unified: map[string]string{"memory.swap.max": "much"}}, {Unified: map[string]string{"pids.max": "-2"}},
	} {
		if _, err := Resources(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: got %v", bad, err)
		}
	}
}

// TestWithMemory checks that an update of memory or swap contains both.
func TestWithMemory(t *testing.T) {
	t.Parallel()
	type r = runtimeapi.LinuxContainerResources
	has := func(memory, swap int64) *container.HostConfig {
		return &container.HostConfig{Resources: container.Resources{Memory: memory, MemorySwap: swap}}
	}
	for name, tc := range map[string]struct {
		change       *r
		now          *container.HostConfig
		memory, swap int64 // limits for the engine
	}{
		"memory alone":                     {&r{MemoryLimitInBytes: 20}, has(10, 10), 20, 20},
		"memory of one that swaps":         {&r{MemoryLimitInBytes: 20}, has(10, 14), 20, 24},
		"memory of one that swaps at will": {&r{MemoryLimitInBytes: 20}, has(10, -1), 20, -1},
		"a first limit of memory":          {&r{MemoryLimitInBytes: 20}, has(0, 0), 20, 20},
		"swap alone":                       {&r{MemorySwapLimitInBytes: 14}, has(10, 10), 10, 14},
		"swap alone, the new way":          {&r{Unified: map[string]string{"memory.swap.max": "4"}}, has(10, 10), 10, 14},
		"both":                             {&r{MemoryLimitInBytes: 20, MemorySwapLimitInBytes: 21}, has(10, 15), 20, 21},
		"no end of memory":                 {&r{MemoryLimitInBytes: -1}, has(10, 15), -1, -1},
		"neither":                          {&r{CpuShares: 5, Unified: map[string]string{"pids.max": "1"}}, has(10, 15), 0, 0},
	} {
		got, err := Resources(WithMemory(tc.change, tc.now))
		if err != nil || got.Memory != tc.memory || got.MemorySwap != tc.swap {
			t.Errorf("%s: got memory %d and swap %d, %v; want %d and %d", name, got.Memory, got.MemorySwap, err, tc.memory, tc.swap)
		}
	}
}

func TestCgroupFiles(t *testing.T) {
	t.Parallel()
	r := &runtimeapi.LinuxContainerResources{
		HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 5}},
		Unified:        map[string]string{"memory.high": "10", "pids.max": "3"},
	}
	got, err := CgroupFiles(r, true)
	if diff := cmp.Diff(map[string]string{"hugetlb.2MB.max": "5", "memory.high": "10"}, got); diff != "" || err != nil {
		t.Errorf("v2: %v (-want +got):\n%s", err, diff)
	}
	if _, err := CgroupFiles(r, false); !errdefs.IsInvalidArgument(err) {
		t.Errorf("unified on v1: got %v", err)
	}
	swap := &runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.swap.max": "0"}}
	if got, err := CgroupFiles(swap, true); err != nil || got["memory.swap.max"] != "0" {
		t.Errorf("swap without a limit of memory: got %v, %v", got, err)
	}
	swap.MemoryLimitInBytes = 10
	if got, err := CgroupFiles(swap, true); err != nil || len(got) != 0 {
		t.Errorf("swap that the engine limits: got %v, %v", got, err)
	}
	r.Unified = nil
	got, err = CgroupFiles(r, false)
	if diff := cmp.Diff(map[string]string{"hugetlb.2MB.limit_in_bytes": "5"}, got); diff != "" || err != nil {
		t.Errorf("v1: %v (-want +got):\n%s", err, diff)
	}
	for _, name := range []string{"", "..", "../memory.max", "memory.", ".max", "memory", "a/b.c"} {
		if _, err := CgroupFiles(&runtimeapi.LinuxContainerResources{Unified: map[string]string{name: "1"}}, true); !errdefs.IsInvalidArgument(err) {
			t.Errorf("file %q: got %v", name, err)
		}
	}
	if _, err := CgroupFiles(&runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "../x"}}}, true); !errdefs.IsInvalidArgument(err) {
		t.Errorf("page size: got %v", err)
	}
}

func TestCRIResources(t *testing.T) {
	t.Parallel()
	if got := CRIResources(nil, nil, nil); got != nil {
		t.Errorf("nil: got %v", got)
	}
	in := &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 1, MemorySwapLimitInBytes: 2, CpuShares: 3, CpuPeriod: 4, CpuQuota: 5, CpusetCpus: "0", CpusetMems: "1",
		HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 5}},
	}
	r, err := Resources(in)
	if err != nil {
		t.Fatal(err)
	}
	got := CRIResources(&container.HostConfig{Resources: r}, in.GetHugepageLimits(), in.GetUnified())
	if diff := cmp.Diff(in, got, protocmp.Transform()); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	got := Image(image.Summary{ID: "sha256:1", RepoTags: []string{"<none>:<none>", "a:b"}, RepoDigests: []string{"<none>@<none>"}})
	if diff := cmp.Diff(&runtimeapi.Image{Id: "sha256:1", RepoTags: []string{"a:b"}, Size: 1}, got, protocmp.Transform()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for name, tags := range map[string][]string{"a digest among the tags": {"a:b", "a@sha256:2"}, "another digest": {"a@sha256:3", "a:b"}} {
		want := &runtimeapi.Image{Id: "sha256:1", RepoTags: []string{"a:b"}, RepoDigests: []string{"a@sha256:2"}, Size: 1}
		if name == "another digest" {
			want.RepoDigests = append(want.RepoDigests, "a@sha256:3")
		}
		digests := []string{"a@sha256:2", "a@sha256:2"} // repeated for each tag
		for form, got := range map[string]*runtimeapi.Image{
			"list":    Image(image.Summary{ID: "sha256:1", RepoTags: tags, RepoDigests: digests}),
			"details": ImageDetails(image.InspectResponse{ID: "sha256:1", RepoTags: tags, RepoDigests: digests}),
		} {
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, form, diff)
			}
		}
	}
	config := &dockerspec.DockerOCIImageConfig{ImageConfig: ocispec.ImageConfig{User: "12:34"}}
	got = ImageDetails(image.InspectResponse{ID: "sha256:1", Size: 9, Config: config})
	if diff := cmp.Diff(&runtimeapi.Image{Id: "sha256:1", Size: 9, Uid: &runtimeapi.Int64Value{Value: 12}}, got, protocmp.Transform()); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
	if uid, name := imageUser("bob:x"); uid != nil || name != "bob" {
		t.Errorf("name: got %v %q", uid, name)
	}
	if uid, name := imageUser(""); uid != nil || name != "" {
		t.Errorf("none: got %v %q", uid, name)
	}
	sum := "@sha256:" + strings.Repeat("0", 64)
	both := []string{"docker.io/library/a" + sum, "r.example:5000/b/c" + sum}
	for _, c := range []struct {
		asked   string
		digests []string
		want    string
	}{
		{"a", []string{"<none>@<none>"}, "id"},
		{"a", nil, "id"},
		{"", both, both[0]},
		{"a:1", both, both[0]},
		{"r.example:5000/b/c", both, both[1]},
		{"r.example:5000/b/c:v2" + sum, both, both[1]},
		{"other", both, both[0]},
		{"sha256:" + strings.Repeat("1", 64), both, both[0]},
	} {
		if got := ImageRef("id", c.asked, c.digests); got != c.want {
			t.Errorf("%q of %q: got %q, want %q", c.asked, c.digests, got, c.want)
		}
	}
}

func TestRegistryAuth(t *testing.T) {
	t.Parallel()
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, tc := range map[string]struct {
		in   *runtimeapi.AuthConfig
		want *registry.AuthConfig
	}{
		"nil":             {nil, nil},
		"an address only": {&runtimeapi.AuthConfig{ServerAddress: "x"}, nil},
		"user":            {&runtimeapi.AuthConfig{Username: "u", Password: "p", Auth: "ignored"}, &registry.AuthConfig{Username: "u", Password: "p"}},
		"auth":            {&runtimeapi.AuthConfig{Auth: encode("u:p:q")}, &registry.AuthConfig{Username: "u", Password: "p:q"}},
		"token":           {&runtimeapi.AuthConfig{IdentityToken: "t"}, &registry.AuthConfig{IdentityToken: "t"}},
		"bearer":          {&runtimeapi.AuthConfig{RegistryToken: "t"}, &registry.AuthConfig{RegistryToken: "t"}},
	} {
		header, err := RegistryAuth(tc.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tc.want == nil {
			if header != "" {
				t.Errorf("%s: got a header", name)
			}
			continue
		}
		got, err := registry.DecodeAuthConfig(header)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for _, secret := range []string{"%%%", encode("nocolon"), encode(":p")} {
		if _, err := RegistryAuth(&runtimeapi.AuthConfig{Auth: secret}); !errdefs.IsInvalidArgument(err) || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v, want invalid argument without the secret", err)
		}
	}
}
