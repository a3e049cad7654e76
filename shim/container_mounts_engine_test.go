package shim_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/versions"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
)

// sharedDir returns a mount point with shared propagation.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs", 0)
	mount(t, "", dir, "", unix.MS_SHARED|unix.MS_REC)
	return dir
}

func mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	err := unix.Mount(source, target, kind, flags, "")
	if errors.Is(err, unix.EPERM) {
		test.Missing(t, "this test mounts file systems: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if flags == 0 {
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				t.Errorf("unmount %s: %v", target, err)
			}
		})
	}
}

// TestMountPropagation checks that later mounts of the host are visible unless the mount is private.
func TestMountPropagation(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	dir := sharedDir(t)
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	p := c.pod(t, nil)
	ids := map[runtimeapi.MountPropagation]string{}
	for value, name := range runtimeapi.MountPropagation_name {
		config := shell(strings.ToLower(strings.ReplaceAll(name, "_", "-")), idle)
		config.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/m", Propagation: runtimeapi.MountPropagation(value)}}
		config.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN"}} // to mount
		// The engine's profile for AppArmor forbids mounts.
		config.Linux.SecurityContext.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
		id := p.start(t, config)
		ids[runtimeapi.MountPropagation(value)] = id
		if got := c.status(t, id).GetMounts()[0].GetPropagation(); got != runtimeapi.MountPropagation(value) {
			t.Errorf("%s: the status has %s", name, got)
		}
	}
	mount(t, "tmpfs", inner, "tmpfs", 0)
	if err := os.WriteFile(filepath.Join(inner, "later"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[runtimeapi.MountPropagation]string{
		runtimeapi.MountPropagation_PROPAGATION_PRIVATE:           "",
		runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: "later\n",
		runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:     "later\n",
	} {
		if got := execOutput(t, c, ids[p], "ls /m/inner"); got != want {
			t.Errorf("%s: got %q, want %q", p, got, want)
		}
	}
	// Mounts in the container are visible on the host for bidirectional propagation only.
	for p, id := range ids {
		name := fmt.Sprintf("back-%d", p)
		back := filepath.Join(dir, name)
		if got := execOutput(t, c, id, "mkdir /m/"+name+" && mount --bind /etc /m/"+name+" && echo mounted"); got != "mounted\n" {
			t.Errorf("%s: got %q", p, got)
		}
		left, err := os.ReadDir(back)
		both := p == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		if err != nil || len(left) > 0 != both {
			t.Errorf("%s: of what the container mounted the host sees %v, %v", p, left, err)
		}
		if both {
			if err := unix.Unmount(back, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReadOnlyIsNotRecursive checks that a mount below a read-only mount keeps its mode, as CRI defines without
// recursive_read_only. A kubelet also requests SELinux relabelling.
func TestReadOnlyIsNotRecursive(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", inner, "tmpfs", 0)
	p := c.pod(t, nil)
	for name, relabel := range map[string]bool{"plain": false, "relabelled": true} {
		config := shell(name, "touch /m/outer 2>/dev/null && echo outer; touch /m/inner/x && echo inner")
		config.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/m", Readonly: true, SelinuxRelabel: relabel}}
		if got := p.output(t, config); got != "inner\n" {
			t.Errorf("%s: a container could write to %q, want what is mounted below alone", name, got)
		}
	}
}

// TestHostNamespaces checks that a pod with the host's network has the host's name.
func TestHostNamespaces(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	node := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER}
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.Hostname = ""
		config.Linux.SecurityContext.NamespaceOptions = node
	})
	var want strings.Builder
	for _, n := range []string{"net", "ipc", "uts"} {
		link, err := os.Readlink("/proc/self/ns/" + n)
		if err != nil {
			t.Fatal(err)
		}
		want.WriteString(link + "\n")
	}
	config := shell("host", "for n in net ipc uts; do readlink /proc/self/ns/$n; done")
	config.Linux.SecurityContext.NamespaceOptions = node
	if got := p.output(t, config); got != want.String() {
		t.Errorf("got %q, want %q", got, want.String())
	}
	unsaid := shell("unsaid", "readlink /proc/self/ns/net")
	unsaid.Linux = nil
	if got := p.output(t, unsaid); !strings.HasPrefix(want.String(), got) {
		t.Errorf("a config without namespaces: got %q, want the pod's", got)
	}
}

// TestNamespacesOfPodAndNode checks containers with the node's namespaces in a pod with its own, and containers with
// the pod's namespaces if those are the node's.
func TestNamespacesOfPodAndNode(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	const own, node = runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_NODE
	host := func(n string) string {
		link, err := os.Readlink("/proc/self/ns/" + n)
		if err != nil {
			t.Fatal(err)
		}
		return link + "\n"
	}
	look := func(p *pod, o *runtimeapi.NamespaceOption) (net, uts, ipc string) {
		config := shell("look", "for n in net uts ipc; do readlink /proc/self/ns/$n; done")
		config.Linux.SecurityContext.NamespaceOptions = o
		parts := strings.SplitAfter(p.output(t, config), "\n")
		if len(parts) != 4 {
			t.Fatalf("got %q", parts)
		}
		return parts[0], parts[1], parts[2]
	}
	if net, uts, ipc := look(c.pod(t, nil), &runtimeapi.NamespaceOption{Pid: own, Network: node}); net != host("net") || uts != host("uts") || ipc == host("ipc") {
		t.Errorf("the node's network in a pod with its own: got %s%s%s", net, uts, ipc)
	}
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Ipc: node}
	})
	if net, uts, ipc := look(p, &runtimeapi.NamespaceOption{Pid: own}); net == host("net") || uts == host("uts") || ipc != host("ipc") {
		t.Errorf("the pod's IPC, which is the node's: got %s%s%s", net, uts, ipc)
	}
}

// mountsImages reports whether the engine can mount images. Before API 1.48 the shim needs the layers of overlay2, which
// the containerd image store does not have.
func mountsImages(t *testing.T, c *cri) bool {
	t.Helper()
	info, err := c.engine.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.Driver == "overlay2" || versions.GreaterThanOrEqualTo(c.engine.ClientVersion(), "1.48")
}

// TestImageMountOfManyLayers checks an overlay of several layers with a subpath.
func TestImageMountOfManyLayers(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	if !mountsImages(t, c) {
		t.Skip("the engine cannot mount images")
	}
	p := c.pod(t, nil)
	maker := p.start(t, shell("maker", "echo upper >/etc/added; rm /etc/group; mkdir /new; echo 2 >/new/file"))
	c.exited(t, maker)
	made, err := c.engine.ContainerCommit(t.Context(), maker, container.CommitOptions{Reference: "crishim-test/layers:" + p.id[:12]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { forgetImage(t, c, made.ID) })
	config := shell("layers", "cat /img/etc/added /img/etc/passwd /sub/added /new/file; ls /sub /img/etc; touch /sub/x 2>&1; "+idle)
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/img", Readonly: true, Image: &runtimeapi.ImageSpec{Image: made.ID}},
		{ContainerPath: "/sub", Readonly: true, Image: &runtimeapi.ImageSpec{Image: made.ID}, ImageSubPath: "etc"},
		{ContainerPath: "/new", Readonly: true, Image: &runtimeapi.ImageSpec{Image: made.ID}, ImageSubPath: "new"},
	}
	id := p.start(t, config)
	test.Until(t, "the output", func() bool { return strings.Contains(c.logs(t, id), "Read-only") })
	got := c.logs(t, id)
	if strings.Count(got, "upper\n") != 2 || !strings.Contains(got, "alice:x:1000:1000") || !strings.Contains(got, "\n2\n") || strings.Contains(got, "group\n") {
		t.Errorf("got\n%s", got)
	}
	if _, err := c.image.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: made.ID}}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("remove an image that is mounted: got %v, want FailedPrecondition", err)
	}
	if _, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
}
