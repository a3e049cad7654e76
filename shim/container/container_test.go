package container

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/internal/logdir"
	"github.com/crishim/crishim/shim/state"
)

func TestCreateTakesAFreeNameBesideAStranger(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const name = "k8s_app_web_default_web-uid_0"
	if _, err := f.engine.ContainerCreate(t.Context(), &container.Config{Image: testImage}, &container.HostConfig{}, nil, nil, name); err != nil {
		t.Fatal(err)
	}
	got := f.inspect(t, f.create(t, nil)).Name
	if !strings.HasPrefix(got, "/"+name+"_") {
		t.Errorf("got name %s, want %s with a suffix", got, name)
	}
}

func TestCreateReplacesWhatWasNeverStarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.create(t, nil)
	second := f.create(t, nil)
	if _, err := f.engine.ContainerInspect(t.Context(), first); !errdefs.IsNotFound(err) {
		t.Errorf("the first: got %v, want not found", err)
	}
	f.start(t, second)
	if _, err := f.CreateContainer(t.Context(), f.request(nil)); !errdefs.IsAlreadyExists(err) {
		t.Errorf("after a start: got %v, want already exists", err)
	}
}

// TestOneOfManyCreates checks that one of several concurrent requests creates the container and no other removes it.
func TestOneOfManyCreates(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const many = 8
	var (
		all  sync.WaitGroup
		made = make([]string, many)
		come = make(chan struct{}, many)
	)
	// The first request waits until all others have started.
	var first sync.Once
	f.engine.Fail("ContainerCreate", func(context.Context) error {
		first.Do(func() {
			for range many {
				<-come
			}
		})
		return nil
	})
	f.engine.Fail("ImageInspect", func(context.Context) error {
		come <- struct{}{}
		return nil
	})
	for i := range many {
		all.Go(func() {
			r, err := f.CreateContainer(t.Context(), f.request(nil))
			if err != nil && !errdefs.IsAlreadyExists(err) {
				t.Error(err)
			}
			made[i] = r.GetContainerId()
		})
	}
	all.Wait()
	slices.Sort(made)
	if made = slices.Compact(made); len(made) != 2 {
		t.Fatalf("got %q, want one container and no id for all others", made)
	}
	f.inspect(t, made[1])
	f.create(t, nil) // now the container is a leftover
	if _, err := f.engine.ContainerInspect(t.Context(), made[1]); !errdefs.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
	if len(f.pending.byKey) != 0 {
		t.Errorf("got %v left", f.pending.byKey)
	}
}

// TestCreateKeepsNothingOfACancelledRequest checks that the container is removed, because the engine completes the
// create.
func TestCreateKeepsNothingOfACancelledRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.engine.Containers()
	ctx, cancel := context.WithCancel(t.Context())
	f.engine.Fail("ContainerCreate", func(context.Context) error { cancel(); return nil })
	if _, err := f.CreateContainer(ctx, f.request(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	if diff := cmp.Diff(before, f.engine.Containers()); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

func TestCreateRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	request := f.request(nil)
	request.PodSandboxId = f.create(t, nil)
	if _, err := f.CreateContainer(t.Context(), request); !errdefs.IsNotFound(err) {
		t.Errorf("in a container: got %v, want not found", err)
	}
	request = f.request(nil)
	request.Config.Image = &runtimeapi.ImageSpec{Image: "nosuch"}
	if _, err := f.CreateContainer(t.Context(), request); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), `: no such image "nosuch":`) {
		t.Errorf("from no image: got %v", err)
	}
	f.engine.Exit(f.sandbox, 0)
	if _, err := f.CreateContainer(t.Context(), f.request(nil)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("in a sandbox that has ended: got %v, want failed precondition", err)
	}
}

// TestUsersOfAnImageAreReadOnce checks that if the layers are not accessible, a container is created to read them,
// once, and removed.
func TestUsersOfAnImageAreReadOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	strict := func(name string) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Metadata.Name = name
			c.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				RunAsUsername: "alice", SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
			}}
		}
	}
	first, second := f.create(t, strict("one")), f.create(t, strict("two"))
	for _, id := range []string{first, second} {
		if got := f.inspect(t, id).Config.User; got != "1000:1000" {
			t.Errorf("got user %q, want 1000:1000", got)
		}
	}
	creates := 0
	for _, call := range f.engine.Calls() {
		if call == "CopyFromContainer" {
			creates++
		}
	}
	if creates != 2 || len(f.engine.Containers()) != 3 {
		t.Errorf("%d files were read, containers are %q; want 2 and no third container", creates, f.engine.Containers())
	}
	status, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: first})
	if err != nil {
		t.Fatal(err)
	}
	if u := status.GetStatus().GetUser().GetLinux(); u.GetUid() != 1000 || u.GetGid() != 1000 || !cmp.Equal(u.GetSupplementalGroups(), []int64{1000}) {
		t.Errorf("status: got %v", u)
	}
}

// TestUsersOfAnImageAreNotAContainers: a container that rewrites its /etc/passwd does not choose the uid of other
// containers of its image.
func TestUsersOfAnImageAreNotAContainers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hostile := f.create(t, func(c *runtimeapi.ContainerConfig) { c.Metadata.Name = "hostile" })
	f.engine.WriteFile(hostile, "/etc/passwd", "alice:x:0:0::/:/bin/sh\n")
	if _, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: hostile}); err != nil {
		t.Fatal(err)
	}
	id := f.create(t, func(c *runtimeapi.ContainerConfig) {
		c.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			RunAsUsername: "alice", SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
		}}
	})
	if got := f.inspect(t, id).Config.User; got != "1000:1000" {
		t.Errorf("got user %q, want 1000:1000", got)
	}
}

// TestOOMScoreOfAHostThatForbids uses the sandbox's score, which shows the host's limit.
func TestOOMScoreOfAHostThatForbids(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wish := func(c *runtimeapi.ContainerConfig) {
		c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{OomScoreAdj: -997}}
	}
	if got := f.inspect(t, f.create(t, wish)).HostConfig.OomScoreAdj; got != -997 {
		t.Errorf("allowed: got %d, want -997", got)
	}
	f.sandbox = f.addSandbox(t, "poor", 0)
	if got := f.inspect(t, f.create(t, wish)).HostConfig.OomScoreAdj; got != 0 {
		t.Errorf("forbidden: got %d, want 0", got)
	}
}

// TestLimitsThatCannotBeWrittenEndTheContainer uses an in-memory engine, whose processes do not exist.
func TestLimitsThatCannotBeWrittenEndTheContainer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, func(c *runtimeapi.ContainerConfig) {
		c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1 << 21}},
		}}
	})
	_, err := f.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	if err == nil || !strings.Contains(err.Error(), "hugetlb.2MB") {
		t.Errorf("got %v, want an error about the limit", err)
	}
	if f.inspect(t, id).State.Running {
		t.Error("the container still runs")
	}
	status, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if got := status.GetStatus().GetResources().GetLinux().GetHugepageLimits(); err != nil || len(got) != 1 || got[0].GetLimit() != 1<<21 {
		t.Errorf("status: got %v, %v", got, err)
	}
}

// TestOOMGroupIsADefault: a kubelet asks for it for every container, also where it cannot be written.
func TestOOMGroupIsADefault(t *testing.T) {
	t.Parallel()
	groups := host.CgroupDirs{"": t.TempDir()}
	if err := writeLimits(groups, map[string]string{"memory.oom.group": "1"}); err != nil {
		t.Error(err)
	}
	if err := writeLimits(groups, map[string]string{"memory.oom.group": "0"}); err == nil {
		t.Error("another value than the default was not written, without an error")
	}
}

// TestLimitsInRecordedCgroups writes limits without an engine field to cgroups of both versions.
func TestLimitsInRecordedCgroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"memory.high", "hugetlb.2MB.max", "hugetlb.2MB.limit_in_bytes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("max"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "hugetlb.4MB.max"), 0o700); err != nil { // stands for a file that is not writable
		t.Fatal(err)
	}
	v1, v2 := host.CgroupDirs{"hugetlb": dir, "memory": dir}, host.CgroupDirs{"": dir}
	for name, tc := range map[string]struct {
		groups host.CgroupDirs
		files  map[string]string
		fails  string
	}{
		"version 2":                    {v2, map[string]string{"memory.high": "9", "hugetlb.2MB.max": "1"}, ""},
		"version 1":                    {v1, map[string]string{"hugetlb.2MB.limit_in_bytes": "2"}, ""},
		"none of a size that is none":  {v2, map[string]string{"hugetlb.1GB.max": "0"}, ""},
		"none that may not be written": {v2, map[string]string{"hugetlb.4MB.max": "0"}, ""},
		"no swap, which is the rule":   {v2, map[string]string{"memory.swap.max": "0"}, ""},
		"swap in the request":          {v2, map[string]string{"memory.swap.max": "5"}, "memory.swap.max"},
		"some that may not be written": {v2, map[string]string{"hugetlb.4MB.max": "4"}, "hugetlb.4MB.max"},
		"none without the controller":  {host.CgroupDirs{"memory": dir}, map[string]string{"hugetlb.2MB.limit_in_bytes": "0"}, ""},
		"some of a size that is none":  {v2, map[string]string{"hugetlb.1GB.max": "1"}, "hugetlb.1GB.max"},
		"some without the controller":  {host.CgroupDirs{"memory": dir}, map[string]string{"hugetlb.2MB.limit_in_bytes": "5"}, `="5": the host has no cgroup controller hugetlb`},
		"a file elsewhere":             {v2, map[string]string{"memory.x/../../victim": "1"}, `invalid file name "memory.x/../../victim"`},
		"a file that is none":          {v2, map[string]string{"memory.most": "0"}, "memory.most"},
	} {
		err := writeLimits(tc.groups, tc.files)
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: got %v, want %s in it", name, err, tc.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for file, want := range tc.files {
			if b, err := os.ReadFile(filepath.Join(dir, file)); want != "0" && (err != nil || string(b) != want) {
				t.Errorf("%s: %s has %q, %v; want %s", name, file, b, err, want)
			}
		}
	}
}

// warning is an engine on a host without some cgroup controllers.
type warning struct {
	*enginetest.Memory
	text string
}

func (w *warning) ContainerCreate(ctx context.Context, c *container.Config, h *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error) {
	r, err := w.Memory.ContainerCreate(ctx, c, h, n, p, name)
	r.Warnings = []string{w.text}
	return r, err
}

func (w *warning) ContainerUpdate(ctx context.Context, id string, u container.UpdateConfig) (container.UpdateResponse, error) {
	r, err := w.Memory.ContainerUpdate(ctx, id, u)
	r.Warnings = []string{w.text}
	return r, err
}

// TestLimitsThatTheEngineDrops checks that a limit that the engine ignores with a warning is an error, and that the
// container is removed.
func TestLimitsThatTheEngineDrops(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := &warning{Memory: f.engine}
	f.Service = New(Options{Engine: e})
	for text, tc := range map[string]struct {
		swap int64
		ok   bool
	}{
		"Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.":      {0, false},
		"Your kernel does not support CPU CFS scheduler. CPU period/quota discarded.":                                     {0, false},
		"Your kernel does not support CPU shares or the cgroup is not mounted. Shares discarded.":                         {0, true},
		"Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap.": {0, true},
		"Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap":  {20, false},
		"WARNING: something that is no limit": {0, true},
	} {
		e.text = ""
		id := f.create(t, nil)
		e.text = text
		limits := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 10, MemorySwapLimitInBytes: tc.swap}
		before := len(f.engine.Containers())
		r, err := f.CreateContainer(t.Context(), f.request(func(c *runtimeapi.ContainerConfig) {
			c.Metadata.Name, c.Linux = "limited", &runtimeapi.LinuxContainerConfig{Resources: limits}
		}))
		if tc.ok != (err == nil) || !tc.ok && (!errdefs.IsNotImplemented(err) || len(f.engine.Containers()) != before) {
			t.Errorf("%s: created %v, %v, beside %v", text, r, err, f.engine.Containers())
		}
		if err == nil {
			_, err = f.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: r.GetContainerId()})
			if err != nil {
				t.Error(err)
			}
		}
		_, err = f.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: limits})
		if tc.ok != (err == nil) || !tc.ok && !errdefs.IsNotImplemented(err) {
			t.Errorf("%s: update: %v", text, err)
		}
	}
}

func TestStopErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, nil)
	f.start(t, id)
	if _, err := f.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: -1}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("negative timeout: got %v", err)
	}
	f.engine.Fail("ContainerStop", failing(errdefs.ErrInternal))
	if _, err := f.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); !errdefs.IsInternal(err) {
		t.Errorf("engine error: got %v", err)
	}
	f.engine.Fail("ContainerStop", failing(errdefs.ErrNotFound))
	if _, err := f.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Errorf("gone meanwhile: got %v", err)
	}
	// A sandbox is not a container of this service.
	if _, err := f.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: f.sandbox}); err != nil || !f.inspect(t, f.sandbox).State.Running {
		t.Errorf("a sandbox was stopped, or %v", err)
	}
}

func TestRemoveErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, nil)
	f.engine.Fail("ContainerRemove", failing(errdefs.ErrConflict))
	if _, err := f.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); !errdefs.IsConflict(err) {
		t.Errorf("a conflict that stays: got %v", err)
	}
	// Another client has removed it in the meantime.
	f.engine.Fail("ContainerRemove", func(ctx context.Context) error {
		f.engine.Fail("ContainerRemove", nil)
		if err := f.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}); err != nil {
			return err
		}
		return errdefs.ErrConflict
	})
	if _, err := f.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Errorf("removed by somebody else: got %v", err)
	}
}

func TestListSkipsWhatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.create(t, nil)
	f.engine.Fail("ContainerInspect", failing(errdefs.ErrNotFound))
	r, err := f.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(r.GetContainers()) != 0 {
		t.Errorf("got %v, %v", r, err)
	}
	f.engine.Fail("ContainerInspect", failing(errdefs.ErrInternal))
	r, err = f.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(r.GetContainers()) != 1 || r.GetContainers()[0].GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		t.Errorf("the engine is in trouble with one: got %v, %v", r, err)
	}
	f.engine.Fail("ContainerInspect", failing(errdefs.ErrUnavailable))
	if _, err := f.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); !errdefs.IsUnavailable(err) {
		t.Errorf("engine away: got %v", err)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, func(c *runtimeapi.ContainerConfig) {
		c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100, OomScoreAdj: 5}}
	})
	update := func(r *runtimeapi.LinuxContainerResources) error {
		_, err := f.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
		return err
	}
	if err := update(nil); err != nil {
		t.Errorf("nothing: got %v", err)
	}
	if _, err := f.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Windows: &runtimeapi.WindowsContainerResources{},
	}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("windows: got %v", err)
	}
	if err := update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 200, OomScoreAdj: 5}); err != nil {
		t.Fatal(err)
	}
	if h := f.inspect(t, id).HostConfig; h.Memory != 200 || h.MemorySwap != 200 {
		t.Errorf("got memory %d and swap %d, want 200 for both", h.Memory, h.MemorySwap)
	}
}

// TestUpdateOfAllResources checks updates from kubelets since 1.35, which send all resources. Unsupported changes do
// not fail the request and are logged once.
func TestUpdateOfAllResources(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var text strings.Builder
	f.Service = New(Options{Engine: f.engine, Log: slog.New(slog.NewTextHandler(&text, nil))})
	id := f.create(t, func(c *runtimeapi.ContainerConfig) {
		c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100, OomScoreAdj: 5}}
	})
	f.start(t, id)
	for memory := range int64(3) {
		r := &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 200 + memory, CpuShares: 7, OomScoreAdj: 6 + memory,
			Unified:        map[string]string{"memory.high": strconv.FormatInt(150+memory, 10), "memory.min": "9"},
			HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}},
		}
		if _, err := f.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r}); err != nil {
			t.Fatal(err)
		}
		if c := f.inspect(t, id); c.HostConfig.Memory != 200+memory || c.HostConfig.CPUShares != 7 || !c.State.Running {
			t.Errorf("got memory %d, shares %d, running %v", c.HostConfig.Memory, c.HostConfig.CPUShares, c.State.Running)
		}
	}
	for _, name := range []string{"memory.high", "memory.min", "oom_score_adj"} {
		if n := strings.Count(text.String(), "resource="+name); n != 1 {
			t.Errorf("%s is mentioned %d times in %s", name, n, text.String())
		}
	}
	if strings.Contains(text.String(), "hugetlb") {
		t.Errorf("huge pages were not asked for: %s", text.String())
	}
	if _, err := f.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{Unified: map[string]string{"../x": "1"}},
	}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a name that is none: got %v", err)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "engine.log"), filepath.Join(dir, "pods", "x", "0.log")
	at := logdir.Place{Base: filepath.Join(dir, "pods"), Path: path}
	if err := (links{}).Started(t.Context(), "", at, file); err != nil {
		t.Errorf("an engine without a file here: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := (links{}).Started(t.Context(), "", at, file); err != nil {
			t.Fatal(err)
		}
	}
	if target, err := os.Readlink(path); target != file {
		t.Errorf("got %q, %v; want a link to %s", target, err, file)
	}
	if err := (links{}).Removed(t.Context(), "", at, filepath.Join(dir, "other.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("another container's link went: %v", err)
	}
	for range 2 {
		if err := (links{}).Removed(t.Context(), "", at, file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link is still there: %v", err)
	}
}

func TestStartError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text       string
		privileged bool
		want       string
		class      func(error) bool
	}{
		"engine 20.10": {
			`Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "nope": executable file not found in $PATH: unknown`,
			false, `exec: "nope": executable file not found in $PATH`, errdefs.IsInvalidArgument,
		},
		"old runc": {
			`OCI runtime create failed: container_linux.go:380: starting container process caused: exec: "/x": permission denied: unknown`,
			false, `exec: "/x": permission denied`, errdefs.IsInvalidArgument,
		},
		"privileged": {
			`failed to create shim: OCI runtime create failed: apply caps: operation not permitted: unknown`,
			true, `does not allow privileged containers`, errdefs.IsUnknown,
		},
	} {
		got := startError(errors.New(tc.text), tc.privileged)
		if !strings.Contains(got.Error(), tc.want) || !tc.class(got) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	conflict := errdefs.ErrConflict
	if got := startError(conflict, false); !errors.Is(got, conflict) {
		t.Errorf("the engine's own error: got %v", got)
	}
}

// slowLogs are logs whose completion the test controls.
type slowLogs struct {
	links
	missing bool
}

func (l *slowLogs) Unfinished(context.Context, string) bool { return l.missing }

// TestAContainerEndsWhenItsLogIsComplete checks that each list and status shows the container as running until then,
// with any filter.
func TestAContainerEndsWhenItsLogIsComplete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	logs := &slowLogs{missing: true}
	f.Service = New(Options{Engine: f.engine, Logs: logs})
	id := f.create(t, nil)
	f.start(t, id)
	f.engine.Exit(id, 3)
	for _, missing := range []bool{true, false} {
		logs.missing = missing
		want, code := runtimeapi.ContainerState_CONTAINER_EXITED, int32(3)
		if missing {
			want, code = runtimeapi.ContainerState_CONTAINER_RUNNING, 0
		}
		got, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		if s := got.GetStatus(); s.GetState() != want || s.GetExitCode() != code || s.GetReason() == "" != missing || s.GetFinishedAt() == 0 != missing {
			t.Errorf("lines missing %t: got status %v", missing, s)
		}
		for _, filter := range []*runtimeapi.ContainerFilter{nil, {State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, {State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}}} {
			list, err := f.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: filter})
			if err != nil {
				t.Fatal(err)
			}
			listed := filter == nil || filter.GetState().GetState() == want
			if c := list.GetContainers(); (len(c) == 1) != listed || listed && c[0].GetState() != want {
				t.Errorf("lines missing %t, filter %v: got %v", missing, filter, c)
			}
		}
	}
}

// abandoned is an engine whose client disconnects during a start, which the engine completes.
type abandoned struct {
	*enginetest.Memory
	goAway func()
}

func (e abandoned) ContainerStart(ctx context.Context, id string, o container.StartOptions) error {
	e.goAway()
	return errors.Join(e.Memory.ContainerStart(context.WithoutCancel(ctx), id, o), ctx.Err())
}

type startedLogs struct {
	links
	ids []string
}

func (l *startedLogs) Started(ctx context.Context, id string, _ logdir.Place, _ string) error {
	l.ids = append(l.ids, id)
	return ctx.Err()
}

// TestAnAbandonedStartIsCompleted checks that a running container has its limits and log even if its request was
// cancelled.
func TestAnAbandonedStartIsCompleted(t *testing.T) {
	t.Parallel()
	f, logs := newFixture(t), &startedLogs{}
	ctx, cancel := context.WithCancel(t.Context())
	f.Service = New(Options{Engine: abandoned{f.engine, cancel}, Logs: logs})
	r := f.request(func(c *runtimeapi.ContainerConfig) { c.LogPath = "app.log" })
	r.SandboxConfig.LogDirectory = t.TempDir()
	created, err := f.CreateContainer(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()})
	if running := f.inspect(t, created.GetContainerId()).State.Running; !running || !slices.Equal(logs.ids, []string{created.GetContainerId()}) {
		t.Errorf("got %v; running: %t, with a log: %v", err, running, logs.ids)
	}
}

// ending is an engine whose container runs when inspected after the start, and has ended with its process shortly
// after.
type ending struct {
	*enginetest.Memory
	stays bool // the container runs on another host, where its process is not visible
	looks int  // inspections since the start
}

func (e *ending) ContainerStart(ctx context.Context, id string, o container.StartOptions) error {
	e.looks = 1
	return e.Memory.ContainerStart(ctx, id, o)
}

func (e *ending) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	c, err := e.Memory.ContainerInspect(ctx, id)
	if err == nil && e.looks > 0 && c.State != nil {
		c.State.Pid = 1 << 30 // larger than any pid
		if e.looks > 1 && !e.stays {
			c.State.Running, c.State.Pid, c.State.Status = false, 0, "exited"
		}
		e.looks++
	}
	return c, err
}

// TestStartOfContainersThatEndAtOnce checks that limits of an ended container are no error. Unrequested limits of huge
// pages do not depend on the host either.
func TestStartOfContainersThatEndAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stays bool
		limit uint64
		fails bool
	}{
		"it has ended":                           {false, 1 << 21, false},
		"it runs elsewhere, nothing was asked":   {true, 0, false},
		"it runs elsewhere, with limits of ours": {true, 1 << 21, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.Service = New(Options{Engine: &ending{Memory: f.engine, stays: tc.stays}})
			id := f.create(t, func(c *runtimeapi.ContainerConfig) {
				c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
					HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: tc.limit}},
				}}
			})
			if _, err := f.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); (err != nil) != tc.fails {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestImageSubPathMustExist checks that the subpath is verified before the create, for engines that mount images
// themselves, and that no helper is left.
func TestImageSubPathMustExist(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.engine.Version.APIVersion = imageMountAPI
	with := func(sub string) *runtimeapi.CreateContainerRequest {
		return f.request(func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/img", Readonly: true, Image: &runtimeapi.ImageSpec{Image: testImage}, ImageSubPath: sub}}
		})
	}
	if _, err := f.CreateContainer(t.Context(), with("etc/nosuch")); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "etc/nosuch does not exist in the image") {
		t.Errorf("got %v", err)
	}
	made, err := f.CreateContainer(t.Context(), with("etc"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.engine.ContainerList(t.Context(), container.ListOptions{All: true})
	if err != nil || len(list) != 2 {
		t.Errorf("got %d containers, %v, want the sandbox and %s", len(list), err, made.GetContainerId())
	}
}

// A container of another shim keeps the requested annotations, but not the hooks of its image.
func TestAnnotationsOfAnotherShimsImage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const hook, hash = "io.kubernetes.container.preStopHandler", "io.kubernetes.container.hash"
	f.engine.LabelImage(testImage, map[string]string{"annotation." + hook: `{"httpGet":{"host":"169.254.169.254"}}`, "annotation." + hash: "theirs"})
	made, err := f.engine.ContainerCreate(t.Context(), &container.Config{Image: testImage, Labels: map[string]string{
		state.LabelType: state.TypeContainer, state.LabelSandboxID: f.sandbox, state.LabelLogPath: "", "annotation." + hash: "abc",
	}}, &container.HostConfig{}, nil, nil, "k8s_app_web_default_web-uid_0")
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: made.ID})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{hash: "abc"}, r.GetStatus().GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}
