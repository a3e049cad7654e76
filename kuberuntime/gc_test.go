package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

var gcNow = time.Unix(1_700_000_000, 0)

// dead returns an exited container that was created some minutes before gcNow.
func dead(id, name, sandbox string, minutes int) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id, PodSandboxId: sandbox, Metadata: &runtimeapi.ContainerMetadata{Name: name}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt: gcNow.Add(-time.Duration(minutes) * time.Minute).UnixNano(),
	}
}

func live(id, name, sandbox string) *runtimeapi.Container {
	c := dead(id, name, sandbox, 1)
	c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	return c
}

func box(id string, minutes int, ready bool) *runtimeapi.PodSandbox {
	s := &runtimeapi.PodSandbox{Id: id, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: gcNow.Add(-time.Duration(minutes) * time.Minute).UnixNano()}
	if ready {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return s
}

func TestDeadContainersAndSandboxes(t *testing.T) {
	t.Parallel()
	pods := []*pod.Pod{
		{UID: "a", Name: "a", Sandboxes: []*runtimeapi.PodSandbox{box("a1", 1, true), box("a0", 9, false)},
			Containers: []*runtimeapi.Container{live("a-run", "c", "a1"), dead("a-2", "c", "a1", 2), dead("a-5", "c", "a0", 5), dead("a-9", "c", "a0", 9)}},
		{UID: "b", Name: "b", Sandboxes: []*runtimeapi.PodSandbox{box("b0", 8, false)}, Containers: []*runtimeapi.Container{dead("b-8", "c", "b0", 8)}},
	}
	gone := func(uid string) bool { return uid == "b" }
	cases := []struct {
		name    string
		policy  GCPolicy
		sources Sources
		want    []string
	}{
		{"the kubelet's", DefaultGCPolicy(), Sources{}, []string{"a-9", "a-5", "a0"}},
		{"none of a container", GCPolicy{MaxPerContainer: 0, MaxContainers: -1}, Sources{}, []string{"a-9", "a-5", "a-2", "b-8", "a0"}},
		{"no limits", GCPolicy{MaxPerContainer: -1, MaxContainers: -1}, Sources{}, nil},
		{"young ones stay", GCPolicy{MinAge: 6 * time.Minute, MaxPerContainer: 0, MaxContainers: -1}, Sources{}, []string{"a-9", "b-8"}},
		{"total", GCPolicy{MaxPerContainer: -1, MaxContainers: 1}, Sources{}, []string{"a-9", "a-5", "b-8", "a0"}},
		{"a pod that is gone has no share", GCPolicy{MaxPerContainer: -1, MaxContainers: 2}, Sources{Deleted: gone}, []string{"b-8", "a-9", "b0"}},
		{"a pod is gone", GCPolicy{MaxPerContainer: -1, MaxContainers: -1}, Sources{Deleted: gone}, []string{"b-8", "b0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			containers := deadContainers(pods, c.policy, c.sources, gcNow)
			var got []string
			for _, item := range append(containers, deadSandboxes(pods, containers, c.sources)...) {
				got = append(got, item.ID)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAContainerThatIsAboutToStart: a new CREATED container is not removed and does not count as a dead attempt.
func TestAContainerThatIsAboutToStart(t *testing.T) {
	t.Parallel()
	made := func(minutes int) *runtimeapi.Container {
		c := dead("made", "c", "a1", minutes)
		c.State = runtimeapi.ContainerState_CONTAINER_CREATED
		return c
	}
	for _, c := range []struct {
		name  string
		made  *runtimeapi.Container
		limit int
		want  []string
	}{
		{"made a moment ago", made(0), 1, nil},
		{"made a moment ago, none may stay", made(0), 0, []string{"ended"}},
		{"never started", made(3), 1, []string{"ended"}},
		{"never started, none may stay", made(3), 0, []string{"ended", "made"}},
	} {
		pods := []*pod.Pod{{UID: "a", Name: "a", Containers: []*runtimeapi.Container{dead("ended", "c", "a1", 9), c.made}}}
		var got []string
		for _, item := range deadContainers(pods, GCPolicy{MaxPerContainer: c.limit, MaxContainers: -1}, Sources{}, gcNow) {
			got = append(got, item.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestUnusedImages(t *testing.T) {
	t.Parallel()
	images := []*runtimeapi.Image{
		{Id: "small", Size: 5}, {Id: "large", Size: 30}, {Id: "pinned", Size: 90, Pinned: true},
		{Id: "used", Size: 80}, {Id: "tagged", Size: 70, RepoTags: []string{"app:1"}},
	}
	used := usedImages{}
	used.add("used", "app:1")
	cases := []struct {
		available uint64
		policy    ImagePolicy
		want      []string
	}{
		{100, ImagePolicy{85, 80}, nil},
		{100, ImagePolicy{80, 75}, []string{"large"}},
		{10, ImagePolicy{85, 80}, []string{"large", "small"}},
		{10, ImagePolicy{85, 93}, []string{"large"}},
	}
	for _, c := range cases {
		var got []string
		_, toFree := c.policy.excess(500, c.available)
		for _, item := range unusedImages(images, used, toFree, nil, gcNow) {
			got = append(got, item.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c, diff)
		}
	}
}

// TestImagesByUse: a long-running process records used and new images.
func TestImagesByUse(t *testing.T) {
	t.Parallel()
	images := []*runtimeapi.Image{{Id: "old", Size: 5}, {Id: "once", Size: 30}, {Id: "later", Size: 40}, {Id: "busy", Size: 80}}
	history := &imageHistory{}
	plan := func(minute int, inUse ...string) string {
		used, now := usedImages{}, gcNow.Add(time.Duration(minute)*time.Minute)
		used.add(inUse...)
		history.note(images, used, now)
		var got []string
		for _, item := range unusedImages(images, used, 499, history, now) {
			got = append(got, item.ID)
		}
		return strings.Join(got, " ")
	}
	for _, step := range []struct {
		minute int
		inUse  []string
		want   string
	}{
		{0, []string{"busy", "once"}, "later old"}, // no recorded use: the largest first
		{5, []string{"busy", "later"}, "old once"},
		{10, []string{"busy"}, "old once later"},
		{15, nil, "old once later busy"},
	} {
		if got := plan(step.minute, step.inUse...); got != step.want {
			t.Errorf("minute %d: got %q, want %q", step.minute, got, step.want)
		}
	}
	images = append(images, &runtimeapi.Image{Id: "new", Size: 90})
	if got := plan(16); strings.Contains(got, "new") {
		t.Errorf("an image that has just come goes: %q", got)
	}
	if got := plan(18); got != "old new once later busy" { // images known for longer come first
		t.Errorf("two minutes later: got %q", got)
	}
	images = slices.Delete(images, 0, 1)
	plan(19)
	if len(history.records) != len(images) {
		t.Error("images that are gone are remembered")
	}
}

// TestPodsThatAreMadeKeepTheirDirectories: a pod in creation has a directory before it has a sandbox.
func TestPodsThatAreMadeKeepTheirDirectories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	unlock, err := f.LockPod(ctx, p.Namespace, p.Name, func() {})
	if err != nil {
		t.Fatal(err)
	}
	f.stub.Before("RunPodSandbox", func(context.Context) {
		if _, err := f.GarbageCollect(ctx, DefaultGCPolicy(), Sources{}); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(recordPath(f.o.Dirs, "u1")); err != nil {
			t.Errorf("the directory of a pod that is being made is gone: %v", err)
		}
	})
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

// TestPodsThatAreMadeAfterThePlanKeepTheirDirectories: each item is checked again right before its removal.
func TestPodsThatAreMadeAfterThePlanKeepTheirDirectories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if err := f.recordPod(t.Context(), p, f.status(t, p)); err != nil { // another process has only written the record
		t.Fatal(err)
	}
	g, err := f.PlanGarbage(ctx, DefaultGCPolicy(), Sources{})
	if err != nil || len(g.Items) != 1 {
		t.Fatalf("got %+v, %v, want the pod's directory", g, err)
	}
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	if err := f.Collect(ctx, g); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(recordPath(f.o.Dirs, "u1")); err != nil {
		t.Errorf("the directory of a pod that was made after the plan is gone: %v", err)
	}
}

// TestPodsOfTwoRuntimesShareADirectory: the same manifest has the same UID on two runtimes. The directory stays until
// the last runtime has removed or lost its pod.
func TestPodsOfTwoRuntimesShareADirectory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := newFixture(t, func(o *Options) {
		o.Dirs, o.Endpoint = f.o.Dirs, "elsewhere" // a runtime with the same name
	})
	ctx := deadline(t)
	p, set := parse(t, `
  containers: [{name: a, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, emptyDir: {}}]`)
	up := func() {
		t.Helper()
		for _, f := range []*fixture{f, other} {
			if _, err := f.Up(ctx, p, set, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := func(want bool) {
		t.Helper()
		for _, path := range []string{f.o.Dirs.Volume("u1", "empty-dir", "v"), f.o.Dirs.PodLogs(p)} {
			if _, err := os.Stat(path); (err == nil) != want {
				t.Errorf("%s: got %v", path, err)
			}
		}
	}
	up()
	if owner := f.OwnerOf(t.Context(), &pod.Pod{UID: "u1"}); !owner.Apply {
		t.Error("the pod of the first runtime is no longer of apply")
	}
	if err := other.Remove(ctx, p, other.status(t, p), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := other.GarbageCollect(ctx, DefaultGCPolicy(), Sources{}); err != nil {
		t.Fatal(err)
	}
	there(true) // also after garbage collection on the runtime that has removed the pod
	if err := f.Remove(ctx, p, f.status(t, p), nil); err != nil {
		t.Fatal(err)
	}
	there(false)
	up()
	for _, s := range f.status(t, p).Sandboxes { // the first runtime loses its pod
		if _, err := f.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []*fixture{f, other} {
		if _, err := f.GarbageCollect(ctx, DefaultGCPolicy(), Sources{}); err != nil {
			t.Fatal(err)
		}
		there(true)
	}
	if err := other.Remove(ctx, p, other.status(t, p), nil); err != nil {
		t.Fatal(err)
	}
	there(false)
}

// TestGarbageCollectDirectories collects the directories of pods that the runtime has lost.
func TestGarbageCollectDirectories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	lost := p.DeepCopy()
	lost.UID = "lost"
	other := p.DeepCopy()
	other.UID = "other"
	for _, q := range []struct {
		uid, endpoint string
	}{{"lost", "stub"}, {"other", "elsewhere"}} {
		for _, dir := range []string{f.o.Dirs.Pod(q.uid), f.o.Dirs.Logs + "/default_web_" + q.uid} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		text := fmt.Sprintf(`{"runtimes": {%[1]q: {"endpoint": %[1]q}}, "pod": {"metadata": {"name": "web", "namespace": "default", "uid": %[2]q}}}`, q.endpoint, q.uid)
		if err := os.WriteFile(recordPath(f.o.Dirs, q.uid), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := f.GarbageCollect(deadline(t), DefaultGCPolicy(), Sources{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range g.Items {
		got = append(got, item.Kind)
	}
	if diff := cmp.Diff([]string{"log directory", "pod directory"}, got); diff != "" {
		t.Error(diff)
	}
	for dir, want := range map[string]bool{f.o.Dirs.Pod("lost"): false, f.o.Dirs.Pod("other"): true, f.o.Dirs.Pod("u1"): true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: got %v", dir, err)
		}
	}
}

// onDisk answers ImageFsInfo with the root file system.
func onDisk() (proto.Message, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"}}}}, nil
}

// TestSandboxImageStays: the sandbox image is kept, although no listed container uses it.
func TestSandboxImageStays(t *testing.T) {
	t.Parallel()
	for _, told := range []string{"pause:1", ""} {
		f := newFixture(t, func(o *Options) {
			o.answer(map[string]func() (proto.Message, error){"ImageFsInfo": onDisk, "Status": func() (proto.Message, error) {
				return &runtimeapi.StatusResponse{Info: map[string]string{"config": `{"sandboxImage":"` + told + `"}`}}, nil
			}})
		})
		pause := f.stub.AddImage("pause:1")
		f.stub.Image("pause:1", func(i *runtimeapi.Image) { i.Size = 1 << 40 }) // the largest image is removed first
		g, err := f.PlanImages(t.Context(), ImagePolicy{})                      // all unused images
		if err != nil {
			t.Fatal(err)
		}
		goes := slices.ContainsFunc(g.Items, func(i GarbageItem) bool { return i.ID == pause })
		if goes != (told == "") {
			t.Errorf("sandbox image %q: goes %t", told, goes)
		}
	}
}

// TestMountedImageStays: a mounted image is kept, whichever of its names the mount has.
func TestMountedImageStays(t *testing.T) {
	t.Parallel()
	for _, mounted := range []string{"model:1", "its id", "busybox:1"} {
		ref := ""
		f := newFixture(t, func(o *Options) {
			o.answer(map[string]func() (proto.Message, error){"ImageFsInfo": onDisk, "ContainerStatus": func() (proto.Message, error) {
				if ref == "" {
					return nil, nil
				}
				return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Mounts: []*runtimeapi.Mount{
					{ContainerPath: "/data"}, {ContainerPath: "/model", Image: &runtimeapi.ImageSpec{Image: ref}},
				}}}, nil
			}})
		})
		p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
		if _, err := f.Up(deadline(t), p, set, false); err != nil {
			t.Fatal(err)
		}
		model := f.stub.AddImage("model:1")
		f.stub.Image("model:1", func(i *runtimeapi.Image) { i.Size = 1 << 40 }) // the largest image is removed first
		ref = mounted
		if ref == "its id" {
			ref = model
		}
		g, err := f.PlanImages(t.Context(), ImagePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		goes := slices.ContainsFunc(g.Items, func(i GarbageItem) bool { return i.ID == model })
		if goes != (mounted == "busybox:1") {
			t.Errorf("%s is mounted: model:1 goes %t", mounted, goes)
		}
	}
}

// TestImageComesIntoUse: a container or an image volume starts to use an image between the plan and the removal.
func TestImageComesIntoUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.answer(map[string]func() (proto.Message, error){"ImageFsInfo": onDisk}) })
	for _, tag := range []string{"started:1", "mounted:1", "unused:1"} {
		f.stub.AddImage(tag)
	}
	g, err := f.PlanImages(t.Context(), ImagePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	f.stub.AddContainer(f.stub.AddPod("default", "web"), "app", func(c *runtimeapi.ContainerConfig) {
		c.Image = &runtimeapi.ImageSpec{Image: "started:1"}
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", Image: &runtimeapi.ImageSpec{Image: "mounted:1"}}}
	})
	got := map[string]bool{}
	for _, item := range g.Items {
		gone, err := f.CollectItem(t.Context(), item)
		if err != nil {
			t.Error(err)
		}
		got[item.Name] = gone
	}
	for name, want := range map[string]bool{"started:1": false, "mounted:1": false, "unused:1": true} {
		if gone, planned := got["docker.io/library/"+name]; !planned || gone != want {
			t.Errorf("%s: planned %t, removed %t; got %v", name, planned, gone, got)
		}
	}
}

// TestImagesInUse: images of containers, of image volumes and of the runtime itself are in use, by each of their names.
func TestImagesInUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) {
		o.answer(map[string]func() (proto.Message, error){
			"Status": func() (proto.Message, error) {
				return &runtimeapi.StatusResponse{Info: map[string]string{"config": `{"sandboxImage":"pause:1"}`}}, nil
			},
			"ListContainers": func() (proto.Message, error) {
				return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
					{Id: "gone", ImageId: "by-id", ImageRef: "by-ref", Image: &runtimeapi.ImageSpec{Image: "by-name", UserSpecifiedImage: "user:1"}},
				}}, nil
			},
		})
	})
	f.stub.AddImage("pause:1")
	used, err := ImagesInUse(t.Context(), f.runtime, f.image)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"user:1", "pause:1", "busybox:1"} {
		if got := used.Has(&runtimeapi.Image{Id: "other", RepoTags: []string{tag}}); got != (tag != "busybox:1") {
			t.Errorf("%s: used %t", tag, got)
		}
	}
}

// TestImagesOfSandboxes: containerd 2 has the sandbox image in the status of sandboxes, not in its configuration.
func TestImagesOfSandboxes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) {
		o.answer(map[string]func() (proto.Message, error){
			"ListPodSandbox": func() (proto.Message, error) {
				return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "one"}}}, nil
			},
			"PodSandboxStatus": func() (proto.Message, error) {
				return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": `{"image":"pause:1"}`}}, nil
			},
		})
	})
	f.stub.AddImage("pause:1")
	used, err := ImagesInUse(t.Context(), f.runtime, f.image)
	if err != nil || !used.Has(&runtimeapi.Image{Id: "other", RepoTags: []string{"pause:1"}}) {
		t.Errorf("the image of a sandbox is not used; %v", err)
	}
}

// TestALoopReportsWhatKeepsImages: a Loop reports a failed image collection, unless the images are on another host.
func TestALoopReportsWhatKeepsImages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		call   string
		answer func() (proto.Message, error)
		failed bool
	}{
		{"ImageFsInfo", func() (proto.Message, error) { return nil, errors.New("no answer") }, true},
		{"ListImages", func() (proto.Message, error) { return nil, errors.New("no answer") }, true},
		{"ImageFsInfo", func() (proto.Message, error) { return &runtimeapi.ImageFsInfoResponse{}, nil }, false},
	} {
		f := newFixture(t, func(o *Options) {
			answers := map[string]func() (proto.Message, error){"ImageFsInfo": onDisk}
			answers[c.call] = c.answer
			o.answer(answers)
		})
		l := &Loop{m: f.Manager, o: LoopOptions{Images: DefaultImagePolicy()}}
		if err := l.collectImages(t.Context()); (err != nil) != c.failed {
			t.Errorf("%s: got %v", c.call, err)
		}
	}
}

// TestALockThatCannotBeGivenBackIsAnError: releasing a removed lock fails, because two processes may have used the pod.
func TestALockThatCannotBeGivenBackIsAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, _ := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	err := f.whenLost(deadline(t), &Record{Pod: p}, Sources{}, func() error { return os.RemoveAll(filepath.Join(f.o.Dirs.Root, "locks")) })
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that the lock is gone", err)
	}
}

// TestImagesInUseByAnyName: a container may refer to its image by any name of the image.
func TestImagesInUseByAnyName(t *testing.T) {
	t.Parallel()
	const digest = "sha256:302682008092251e8c62a3dba65aae530bc413f0528f73130bbdf5e97485a3b1"
	for name, c := range map[string]struct {
		used  string
		image *runtimeapi.Image
		want  bool
	}{
		"short":             {"nginx", &runtimeapi.Image{RepoTags: []string{"docker.io/library/nginx:latest"}}, true},
		"with its registry": {"docker.io/library/nginx:1", &runtimeapi.Image{RepoTags: []string{"nginx:1"}}, true},
		"another tag":       {"nginx:1", &runtimeapi.Image{RepoTags: []string{"nginx:2"}}, false},
		"another registry":  {"nginx", &runtimeapi.Image{RepoTags: []string{"quay.io/nginx:latest"}}, false},
		"tag and digest":    {"nginx:1@" + digest, &runtimeapi.Image{RepoDigests: []string{"docker.io/library/nginx@" + digest}}, true},
		"id without prefix": {strings.TrimPrefix(digest, "sha256:"), &runtimeapi.Image{Id: digest}, true},
		"any text":          {"IMAGE:", &runtimeapi.Image{Id: "IMAGE:"}, true},
		"none":              {"", &runtimeapi.Image{Id: ""}, false},
	} {
		used := usedImages{}
		used.add(c.used)
		if got := used.Has(c.image); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
