package output

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// update is set by `make golden`. Golden files are then rewritten instead of compared.
var update = os.Getenv("CRISHIM_UPDATE_GOLDEN") != ""

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

const (
	longID  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	otherID = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
)

var containers = &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
	{
		Id: otherID, PodSandboxId: longID, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		Metadata: &runtimeapi.ContainerMetadata{Name: "old", Attempt: 2}, CreatedAt: now.Add(-3 * time.Hour).UnixNano(),
		Image: &runtimeapi.ImageSpec{Image: "sha256:" + longID, UserSpecifiedImage: "busybox:1.35"}, ImageId: "sha256:" + longID, ImageRef: "sha256:" + longID,
		Labels: map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "a<b": "x&y"},
	},
	{
		Id: longID, PodSandboxId: otherID, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		CreatedAt: now.Add(-17 * time.Second).UnixNano(), Image: &runtimeapi.ImageSpec{Image: "evil\x1b[31m\u202ename"}, ImageId: "sha256:" + otherID,
	},
	nil,
}}

var pods = &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
	{Id: longID, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: now.Add(-2 * time.Minute).UnixNano(), Metadata: &runtimeapi.PodSandboxMetadata{Name: "日本", Namespace: "shop", Uid: "u-1", Attempt: 1}},
	{Id: otherID, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, RuntimeHandler: "runsc"},
}}

var images = &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{
	{Id: "sha256:" + longID, RepoTags: []string{"localhost:5000/web:2", "web:latest"}, RepoDigests: []string{"web@sha256:" + otherID}, Size: 1981234},
	{Id: "sha256:" + otherID, RepoDigests: []string{"db@sha256:" + longID}, Size: 1 << 53, Pinned: true, Uid: &runtimeapi.Int64Value{Value: 1<<53 + 1}},
	{Id: "sha256:" + strings.Repeat("a", 64)},
}}

func status() []*runtimeapi.ContainerStatusResponse {
	return []*runtimeapi.ContainerStatusResponse{{
		Status: &runtimeapi.ContainerStatus{Id: longID, Metadata: &runtimeapi.ContainerMetadata{Name: "web"}, CreatedAt: now.UnixNano(), Reason: "a > b & c", ExitCode: 3},
		Info:   map[string]string{"info": `{"pid": 9007199254740993, "list": [1], "html": "<&>"}`, "text": `"quoted"`, "digits": "123", "broken": "{"},
	}}
}

func TestGolden(t *testing.T) {
	format := func(s string) Options {
		f, err := ParseFormat(s)
		if err != nil {
			t.Fatal(err)
		}
		return Options{Format: f, Now: now}
	}
	table := func(change func(*Options)) Options {
		o := Options{Now: now}
		change(&o)
		return o
	}
	cases := map[string]func(io.Writer) error{}
	for _, f := range []string{"table", "wide", "json", "jsonl", "yaml", "name"} {
		cases["ps-"+f] = func(w io.Writer) error { return Containers(w, containers, format(f)) }
		cases["pods-"+f] = func(w io.Writer) error { return Pods(w, pods, format(f)) }
		cases["images-"+f] = func(w io.Writer) error { return Images(w, images, format(f)) }
		cases["inspect-"+f] = func(w io.Writer) error { return InspectContainers(w, status(), format(f)) }
		cases["version-"+f] = func(w io.Writer) error {
			return Version(w, &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "docker", RuntimeVersion: "20.10.24", RuntimeApiVersion: "v1"}, format(f))
		}
		cases["endpoints-"+f] = func(w io.Writer) error {
			return Endpoints(w, []Endpoint{{Endpoint: "unix:///run/containerd/containerd.sock", Kind: "containerd", State: "absent", Detail: "no such file"}, {Endpoint: "docker://", Kind: "docker", State: "ok", Chosen: true}}, format(f))
		}
		cases["doctor-"+f] = func(w io.Writer) error {
			return Findings(w, []Finding{
				{State: FindingOK, Check: "runtime", Detail: "docker 20.10.24 at docker://"},
				{State: FindingFailed, Check: "NetworkReady", Detail: "no CNI configuration \x1b[31m<&>", Hint: "put one into /etc/cni/net.d"},
				{State: FindingSkipped, Check: "streaming", Detail: "no ready pod to try it with"},
			}, format(f))
		}
		cases["info-"+f] = func(w io.Writer) error {
			return Info(w, &runtimeapi.StatusResponse{
				Status:          &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Reason: "NoCNI", Message: "no network"}}},
				Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
				RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc"}},
				Info:            map[string]string{"config": `{"a":1}`, "golang": "go1.26"},
			}, format(f))
		}
	}
	cases["ps-no-rows"] = func(w io.Writer) error { return Containers(w, nil, format("")) }
	cases["ps-no-rows-json"] = func(w io.Writer) error { return Containers(w, nil, format("json")) }
	cases["ps-quiet"] = func(w io.Writer) error {
		return Containers(w, containers, table(func(o *Options) { o.Quiet = true }))
	}
	cases["ps-no-trunc"] = func(w io.Writer) error {
		return Containers(w, containers, table(func(o *Options) { o.NoTrunc = true }))
	}
	cases["ps-pods-known"] = func(w io.Writer) error {
		return Containers(w, containers, table(func(o *Options) {
			o.Pods = map[string]*runtimeapi.PodSandboxMetadata{otherID: {Name: "db", Namespace: "back"}, longID: {Name: "not this", Namespace: "one"}}
		}))
	}
	findings := []Finding{
		{State: FindingOK, Check: "runtime", Detail: "containerd 1.6.20 at unix:///run/containerd/containerd.sock"},
		{State: FindingWarning, Check: "live restore", Detail: "a restart of the engine ends all containers", Hint: `set "live-restore": true in /etc/docker/daemon.json and reload the engine`},
		{State: FindingFailed, Check: "evil", Detail: "bad\x1b[31m", Hint: "no"},
	}
	for name, o := range map[string]Options{"80-columns": {Width: 80}, "40-columns": {Width: 40}, "chosen": {Width: 80, NoHeaders: true, Columns: []string{"next step", "check"}}, "uncut": {Width: 80, NoTrunc: true}, "piped": {}} {
		cases["doctor-"+name] = func(w io.Writer) error { return Findings(w, findings, o) }
	}
	cases["endpoints-80-columns"] = func(w io.Writer) error {
		return Endpoints(w, []Endpoint{
			{Endpoint: "unix:///var/snap/microk8s/common/run/containerd.sock", Kind: "microk8s", State: "absent", Detail: "no such socket"},
			{Endpoint: "docker://", Kind: "Docker, from DOCKER_HOST", State: "ready", Detail: "Docker engine 20.10.24", Chosen: true},
		}, Options{Width: 80})
	}
	cases["ps-80-columns"] = func(w io.Writer) error {
		return Containers(w, containers, table(func(o *Options) { o.Width = 80 }))
	}
	cases["ps-sorted-by-created"] = func(w io.Writer) error {
		return Containers(w, containers, table(func(o *Options) { o.Sort, o.Columns = "created", []string{"name", "created"} }))
	}
	cases["images-digests-pinned"] = func(w io.Writer) error {
		return Images(w, images, table(func(o *Options) { o.Digests, o.Pinned = true, true }))
	}
	cases["images-go-template"] = func(w io.Writer) error {
		return Images(w, images, format(`go-template={{range .images}}{{.id | upper}} {{.size}} {{json .repoTags}}{{"\n"}}{{end}}`))
	}
	cases["images-jsonpath"] = func(w io.Writer) error { return Images(w, images, format(`jsonpath=.images[*].repoTags[*]`)) }
	cases["inspect-jsonpath-exact"] = func(w io.Writer) error {
		return InspectContainers(w, status(), format(`jsonpath={.info.pid}`))
	}
	cases["inspect-two"] = func(w io.Writer) error { return InspectContainers(w, append(status(), status()...), format("json")) }
	cases["inspect-none"] = func(w io.Writer) error { return InspectContainers(w, nil, format("json")) }
	usages := []Usage{
		{ID: longID, Name: "web", Pod: "shop", Namespace: "default", CPUPercent: 12.345, Memory: 5 << 20, MemoryLimit: 10 << 20, Disk: 4096, Inodes: 3, NetworkIn: 1000, NetworkOut: 2000, BlockRead: -1, BlockWrite: -1, Pids: 4},
		{ID: otherID, Name: "bad", CPUPercent: -1, Memory: -1, Disk: -1, Inodes: -1, Swap: -1, NetworkIn: -1, NetworkOut: -1, BlockRead: -1, BlockWrite: -1, Pids: -1},
	}
	stats := &runtimeapi.ListContainerStatsResponse{Stats: []*runtimeapi.ContainerStats{{Attributes: &runtimeapi.ContainerAttributes{Id: longID}, Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: 5}}}}}
	podStats := &runtimeapi.ListPodSandboxStatsResponse{Stats: []*runtimeapi.PodSandboxStats{{Attributes: &runtimeapi.PodSandboxAttributes{Id: otherID}}}}
	event := &runtimeapi.ContainerEventResponse{
		ContainerId: longID, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: now.UnixNano(),
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop"}},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: longID, Metadata: &runtimeapi.ContainerMetadata{Name: "main\x1b"}}},
	}
	for _, f := range []string{"table", "wide", "json"} {
		cases["stats-"+f] = func(w io.Writer) error { return ContainerStats(w, stats, usages, format(f)) }
		cases["statsp-"+f] = func(w io.Writer) error { return PodStats(w, podStats, usages, format(f)) }
	}
	removed := &runtimeapi.ContainerEventResponse{
		ContainerId: longID, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, CreatedAt: now.Add(2 * time.Second).UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: otherID, Metadata: &runtimeapi.PodSandboxMetadata{Name: "日本日本", Namespace: "a-namespace-that-is-rather-long"}},
	}
	podStopped := &runtimeapi.ContainerEventResponse{
		ContainerId: otherID, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: now.Add(3 * time.Second).UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: otherID, Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop"}},
	}
	gone := &runtimeapi.ContainerEventResponse{ContainerId: otherID, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, CreatedAt: now.Add(time.Second).UnixNano()}
	ended := &runtimeapi.ContainerEventResponse{
		ContainerId: longID, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: now.Add(1500 * time.Millisecond).UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: otherID, Metadata: &runtimeapi.PodSandboxMetadata{Name: "日本日本", Namespace: "a-namespace-that-is-rather-long"}},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{
			Id: longID, Metadata: &runtimeapi.ContainerMetadata{Name: "job"}, State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 137, Reason: "OOMKilled",
		}},
	}
	// The container has already ended when its start event arrives.
	lateStart := proto.CloneOf(ended)
	lateStart.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	events := func(o Options) func(io.Writer) error {
		return func(w io.Writer) error {
			table := NewEvents(w, o)
			err := table.Header()
			for _, e := range []*runtimeapi.ContainerEventResponse{event, gone, ended, lateStart, removed, podStopped} {
				if err == nil {
					err = table.Write(e)
				}
			}
			return err
		}
	}
	for _, f := range []string{"", "table", "wide", "json", "jsonl", "yaml", "name", "go-template={{.containerId}}", "jsonpath={.createdAt}"} {
		name, _, _ := strings.Cut(f, "=")
		cases["events-"+cmp.Or(name, "default")] = events(format(f))
	}
	for _, width := range []int{50, 70, 80, 200} {
		cases[fmt.Sprintf("events-%d-columns", width)] = events(table(func(o *Options) { o.Format.Kind, o.Width, o.Terminal = Table, width, true }))
	}
	cases["events-chosen-columns"] = events(table(func(o *Options) {
		o.Format.Kind, o.Columns, o.NoHeaders, o.NoTrunc = Table, []string{"name", "exit", "container"}, true, true
	}))
	asCrictl := table(func(o *Options) { o.Crictl = true })
	cases["stats-80-columns"] = func(w io.Writer) error { return ContainerStats(w, stats, usages, Options{Width: 80}) }
	cases["stats-crictl"] = func(w io.Writer) error { return ContainerStats(w, stats, usages, asCrictl) }
	cases["statsp-crictl"] = func(w io.Writer) error { return PodStats(w, podStats, usages, asCrictl) }
	cases["imagefsinfo-json"] = func(w io.Writer) error { return ImageFsInfo(w, fsInfo(), format("json")) }
	cases["imagefsinfo-table"] = func(w io.Writer) error { return ImageFsInfo(w, fsInfo(), format("table")) }
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := run(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.String())
		})
	}
}

func fsInfo() *runtimeapi.ImageFsInfoResponse {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: now.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/docker"}, UsedBytes: &runtimeapi.UInt64Value{Value: 12345678},
	}}}
}

// golden compares got with testdata/NAME.golden, or updates the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestTemplateErrors(t *testing.T) {
	for _, s := range []string{"foo", "go-template={{", "go-template", "go-template=", "jsonpath", "jsonpath=", "jsonpath={.a", "table=x"} {
		if _, err := ParseFormat(s); err == nil {
			t.Errorf("ParseFormat(%q): got no error", s)
		}
	}
	f, err := ParseFormat("go-template={{.nosuch}}")
	if err != nil {
		t.Fatal(err)
	}
	if err := Images(io.Discard, images, Options{Format: f}); err == nil {
		t.Error("a template that names a missing field: got no error")
	}
}
