package container

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/storage"
	"github.com/docker/docker/api/types/system"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

func testFacts(api string) facts {
	return facts{
		api:  api,
		info: system.Info{CgroupDriver: "systemd", CgroupVersion: "2", SecurityOptions: []string{"name=seccomp,profile=default", "name=apparmor"}, CDISpecDirs: []string{"/etc/cdi"}},
		pod: state.FoundSandbox{
			Sandbox: state.Sandbox{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"}, PID: runtimeapi.NamespaceMode_CONTAINER},
			Detail: container.InspectResponse{
				ContainerJSONBase: &container.ContainerJSONBase{ID: "box", HostConfig: &container.HostConfig{Runtime: "kata"}},
				Config:            &container.Config{},
			},
		},
		image: image.InspectResponse{ID: "sha256:1"},
		mounted: map[string]image.InspectResponse{
			"many": {ID: "sha256:2", GraphDriver: storage.DriverData{Name: "overlay2", Data: map[string]string{"UpperDir": "/l/2", "LowerDir": "/l/1:/l/0"}}},
			"one":  {ID: "sha256:3", GraphDriver: storage.DriverData{Name: "overlay2", Data: map[string]string{"UpperDir": "/l/9"}}},
			"else": {ID: "sha256:4", GraphDriver: storage.DriverData{Name: "btrfs"}},
		},
	}
}

func planOf(t *testing.T, api string, change func(*runtimeapi.ContainerConfig)) (lifecycle.Spec, error) {
	t.Helper()
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2},
		Image:    &runtimeapi.ImageSpec{Image: "app:v1"},
		LogPath:  "app/2.log",
		Linux:    &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}},
	}
	change(config)
	return makePlan(&runtimeapi.CreateContainerRequest{
		PodSandboxId: "box", Config: config,
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			LogDirectory: "/logs", Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods.slice/kubepods-podu.slice"},
		},
	}, testFacts(api))
}

// TestPlanOnTheWire checks the request for settings whose effect this machine cannot show.
func TestPlanOnTheWire(t *testing.T) {
	t.Parallel()
	p, err := planOf(t, "1.44", func(c *runtimeapi.ContainerConfig) {
		c.Annotations = map[string]string{api.AnnotationConsoleSize: "24x80"}
		c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "vendor.com/gpu=0"}}
		c.Linux.SecurityContext.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "mine"}
		c.Linux.SecurityContext.ApparmorProfile = "localhost/old" //nolint:staticcheck // the new field takes precedence
		c.Linux.SecurityContext.SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0:c1"}
		c.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{}
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 10, MemorySwapLimitInBytes: 30, Unified: map[string]string{"memory.high": "9"},
			HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "1GB", Limit: 1 << 30}},
		}
		c.Mounts = []*runtimeapi.Mount{{HostPath: "/h", ContainerPath: "/c", Readonly: true, RecursiveReadOnly: true}}
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "k8s_app_web_default_u_2" || p.Config.Labels[state.LabelLogPath] != "/logs/app/2.log" || p.Host.Runtime != "kata" || p.Config.Image != "sha256:1" {
		t.Errorf("identity: got %s, %v", p.Name, p.Config)
	}
	want := &container.HostConfig{
		ShmSize: shmSize, Runtime: "kata", ConsoleSize: [2]uint{24, 80}, NetworkMode: "container:box", IpcMode: "container:box",
		SecurityOpt:   []string{"label=level:s0:c1", "apparmor=mine"},
		MaskedPaths:   []string{},
		ReadonlyPaths: []string{},
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: "/h", Target: "/c", ReadOnly: true, BindOptions: &mount.BindOptions{
			Propagation: "rprivate", CreateMountpoint: true, ReadOnlyForceRecursive: true,
		}}},
		Resources: container.Resources{
			Memory: 10, MemorySwap: 30, CgroupParent: "kubepods-podu.slice",
			DeviceRequests: []container.DeviceRequest{{Driver: "cdi", DeviceIDs: []string{"vendor.com/gpu=0"}}},
		},
	}
	// Without namespace options a container gets its own PID namespace.
	if diff := cmp.Diff(want, p.Host); diff != "" {
		t.Errorf("host configuration (-want +got):\n%s", diff)
	}
	noted, err := readLimits(p.Config.Labels[state.LabelOwnLimits])
	if diff := cmp.Diff(map[string]string{"memory.high": "9", "hugetlb.1GB.max": "1073741824"}, noted.Files); diff != "" || err != nil {
		t.Errorf("noted limits: %v (-want +got):\n%s", err, diff)
	}
}

func TestConsoleSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]uint{"": {}, "24x80": {24, 80}, "24": {}, "x80": {}, "-1x80": {}, "70000x80": {}} {
		if got := consoleSize(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestPrivilegedPlanHasNoProfiles(t *testing.T) {
	t.Parallel()
	p, err := planOf(t, "1.41", func(c *runtimeapi.ContainerConfig) {
		c.Linux.SecurityContext.Privileged = true
		c.Linux.SecurityContext.MaskedPaths = []string{"/proc/x"}
		c.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/p"}
		c.Linux.SecurityContext.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "p"}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !p.Host.Privileged || len(p.Host.SecurityOpt) != 0 || p.Host.MaskedPaths != nil {
		t.Errorf("got %v", p.Host)
	}
}

func TestImageMountForms(t *testing.T) {
	t.Parallel()
	with := func(image, sub string) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/img", Readonly: true, Image: &runtimeapi.ImageSpec{Image: image}, ImageSubPath: sub}}
		}
	}
	volume := func(options map[string]string) mount.Mount {
		return mount.Mount{Type: mount.TypeVolume, Target: "/img", VolumeOptions: &mount.VolumeOptions{
			NoCopy: true, DriverConfig: &mount.Driver{Name: "local", Options: options},
		}}
	}
	for name, tc := range map[string]struct {
		api, image, sub string
		want            mount.Mount
	}{
		"the engine's own": {"1.48", "many", "", mount.Mount{Type: mount.TypeImage, Source: "sha256:2", Target: "/img"}},
		"the engine's own, below": {"1.51", "many", "a/b",
			mount.Mount{Type: mount.TypeImage, Source: "sha256:2", Target: "/img", ImageOptions: &mount.ImageOptions{Subpath: "a/b"}}},
		"one layer":   {"1.41", "one", "", volume(map[string]string{"type": "none", "device": "/l/9", "o": "bind,ro"})},
		"many layers": {"1.41", "many", "", volume(map[string]string{"type": "overlay", "device": "overlay", "o": "ro,lowerdir=/l/2:/l/1:/l/0"})},
	} {
		p, err := planOf(t, tc.api, with(tc.image, tc.sub))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff([]mount.Mount{tc.want}, p.Host.Mounts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := planOf(t, "1.41", with("else", "")); !errdefs.IsNotImplemented(err) {
		t.Errorf("another storage driver: got %v", err)
	}
}

// overlayBreakers are names that change the options of an overlay mount.
var overlayBreakers = []string{"a,lowerdir=/etc:/opt", "a:b", "a\\", `a"b`, "a\nb", "a\x7f", "a\x00b"}

// TestOverlayRefusesOptionsInNames checks directory names, from an image or the engine, that the kernel would parse as
// options. They could mount any directory of the host.
func TestOverlayRefusesOptionsInNames(t *testing.T) {
	t.Parallel()
	for _, name := range overlayBreakers {
		for _, data := range []map[string]string{{"UpperDir": "/l/1/" + name}, {"UpperDir": "/l/1/" + name, "LowerDir": "/l/0"}} {
			i := image.InspectResponse{GraphDriver: storage.DriverData{Name: "overlay2", Data: data}}
			if m, err := planImageMount(&runtimeapi.Mount{ContainerPath: "/c"}, i, testFacts("1.41")); !errdefs.IsInvalidArgument(err) {
				t.Errorf("%q: got %v, %v", data, m, err)
			}
		}
		r := &runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "a"}, Image: &runtimeapi.ImageSpec{Image: "i"},
			Mounts: []*runtimeapi.Mount{{ContainerPath: "/c", Readonly: true, ImageSubPath: name, Image: &runtimeapi.ImageSpec{Image: "i"}}},
		}}
		if err := validate(r); !errdefs.IsInvalidArgument(err) {
			t.Errorf("image_sub_path %q: got %v", name, err)
		}
	}
}

func TestPlanRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*runtimeapi.ContainerConfig)
		class  func(error) bool
	}{
		"CDI on an old engine": {func(c *runtimeapi.ContainerConfig) {
			c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "v.com/gpu=0"}}
		}, errdefs.IsNotImplemented},
		"recursive read-only on an old engine": {func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/h", ContainerPath: "/c", Readonly: true, RecursiveReadOnly: true}}
		}, errdefs.IsNotImplemented},
		"an id-mapped image": {func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/c", Readonly: true, Image: &runtimeapi.ImageSpec{Image: "one"}, UidMappings: []*runtimeapi.IDMapping{{}}}}
		}, errdefs.IsNotImplemented},
		"an image with mount options": {func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/c", Readonly: true, Image: &runtimeapi.ImageSpec{Image: "one"}, MountOptions: []string{"noexec"}}}
		}, errdefs.IsNotImplemented},
		"a signal that is none": {func(c *runtimeapi.ContainerConfig) { c.StopSignal = 200 }, errdefs.IsInvalidArgument},
		"a name with =": {func(c *runtimeapi.ContainerConfig) {
			c.Envs = []*runtimeapi.KeyValue{{Key: "a=b"}}
		}, errdefs.IsInvalidArgument},
	} {
		if _, err := planOf(t, "1.41", tc.change); !tc.class(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	f := testFacts("1.41")
	f.info.SecurityOptions = nil
	request := &runtimeapi.CreateContainerRequest{Config: &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
		SecurityContext: &runtimeapi.LinuxContainerSecurityContext{Apparmor: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "p"}},
	}}}
	if _, err := makePlan(request, f); !errdefs.IsNotImplemented(err) {
		t.Errorf("AppArmor where there is none: got %v", err)
	}
	f = testFacts("1.44")
	f.info.CDISpecDirs = nil
	devices := &runtimeapi.CreateContainerRequest{Config: &runtimeapi.ContainerConfig{Annotations: map[string]string{"cdi.k8s.io/x": "v.com/gpu=0"}}}
	if _, err := makePlan(devices, f); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "features.cdi") {
		t.Errorf("CDI on an engine that has it off: got %v", err)
	}
	f = testFacts("1.41")
	f.unloaded = true
	if _, err := makePlan(request, f); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an AppArmor profile that is not loaded: got %v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(*runtimeapi.CreateContainerRequest){
		"no sandbox":    func(r *runtimeapi.CreateContainerRequest) { r.PodSandboxId = "" },
		"no config":     func(r *runtimeapi.CreateContainerRequest) { r.Config = nil },
		"windows":       func(r *runtimeapi.CreateContainerRequest) { r.Config.Windows = &runtimeapi.WindowsContainerConfig{} },
		"relative cwd":  func(r *runtimeapi.CreateContainerRequest) { r.Config.WorkingDir = "x" },
		"absolute log":  func(r *runtimeapi.CreateContainerRequest) { r.Config.LogPath = "/etc/x" },
		"log above":     func(r *runtimeapi.CreateContainerRequest) { r.Config.LogPath = "a/../../x" },
		"log in itself": func(r *runtimeapi.CreateContainerRequest) { r.Config.LogPath = "a/.." },
		"relative logs": func(r *runtimeapi.CreateContainerRequest) {
			r.SandboxConfig = &runtimeapi.PodSandboxConfig{LogDirectory: "x"}
		},
		"NUL in log": func(r *runtimeapi.CreateContainerRequest) { r.Config.LogPath = "a\x00b" },
		"image and host": func(r *runtimeapi.CreateContainerRequest) {
			r.Config.Mounts = []*runtimeapi.Mount{{HostPath: "/h", ContainerPath: "/c", Readonly: true, Image: &runtimeapi.ImageSpec{Image: "i"}}}
		},
		"image to be written to": func(r *runtimeapi.CreateContainerRequest) {
			r.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/c", Image: &runtimeapi.ImageSpec{Image: "i"}}}
		},
		"image that propagates": func(r *runtimeapi.CreateContainerRequest) {
			r.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/c", Readonly: true, Propagation: 1, Image: &runtimeapi.ImageSpec{Image: "i"}}}
		},
		"huge name": func(r *runtimeapi.CreateContainerRequest) { r.Config.Metadata.Name = strings.Repeat("n", 254) },
		"sub-path of none": func(r *runtimeapi.CreateContainerRequest) {
			r.Config.Mounts = []*runtimeapi.Mount{{HostPath: "/h", ContainerPath: "/c", ImageSubPath: "x"}}
		},
		"sub-path that is above": func(r *runtimeapi.CreateContainerRequest) {
			r.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/c", Readonly: true, ImageSubPath: "../x", Image: &runtimeapi.ImageSpec{Image: "i"}}}
		},
	} {
		r := &runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "a"}, Image: &runtimeapi.ImageSpec{Image: "i"}, LogPath: "a/0.log",
		}}
		if err := validate(r); err != nil {
			t.Fatal(err)
		}
		bad(r)
		if err := validate(r); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]bool{
		"": true, "0.log": true, "a/0.log": true, "a/../b": true, ".hidden/0.log": true, "...0.log": true, "..x": true,
		".": false, "..": false, "../x": false, "a/..": false, "a/../../x": false, "/x": false,
	} {
		if got := isBelow(p); got != want {
			t.Errorf("isBelow(%q) = %v, want %v", p, got, want)
		}
	}
}
