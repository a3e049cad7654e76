package convert

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMountForms(t *testing.T) {
	t.Parallel()
	oldEngine, middle, newEngine := MountFeatures{}, MountFeatures{CreateMountpoint: true}, MountFeatures{CreateMountpoint: true, RecursiveReadOnly: true}
	withSELinux := MountFeatures{CreateMountpoint: true, RecursiveReadOnly: true, SELinux: true}
	bindOf := func(source string, readonly bool, o mount.BindOptions) mount.Mount {
		return mount.Mount{Type: mount.TypeBind, Source: source, Target: "/c", ReadOnly: readonly, BindOptions: &o}
	}
	for name, tc := range map[string]struct {
		m      *runtimeapi.Mount
		f      MountFeatures
		binds  []string
		mounts []mount.Mount
	}{
		"text on an old engine": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "c", Readonly: true}, oldEngine, []string{"/h:/c:rprivate,ro"}, nil,
		},
		"propagation as text": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", Propagation: 2}, oldEngine, []string{"/h:/c:rshared"}, nil,
		},
		"a colon cannot be text": {
			&runtimeapi.Mount{HostPath: "/h:h", ContainerPath: "/c"}, oldEngine, nil,
			[]mount.Mount{bindOf("/h:h", false, mount.BindOptions{Propagation: "rprivate"})},
		},
		"structure makes the source": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", Propagation: 1}, middle, nil,
			[]mount.Mount{bindOf("/h", false, mount.BindOptions{Propagation: "rslave", CreateMountpoint: true})},
		},
		"only text relabels": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", SelinuxRelabel: true}, newEngine, []string{"/h:/c:rprivate,Z"}, nil,
		},
		"nothing to relabel, so read-only stays non-recursive": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", Readonly: true, SelinuxRelabel: true}, newEngine, nil,
			[]mount.Mount{bindOf("/h", true, mount.BindOptions{Propagation: "rprivate", CreateMountpoint: true, ReadOnlyNonRecursive: true})},
		},
		"relabelled and read-only": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", Readonly: true, SelinuxRelabel: true}, withSELinux, []string{"/h:/c:rprivate,ro,Z"}, nil,
		},
		"relabelled and read-only before recursive mounts": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", Readonly: true, SelinuxRelabel: true}, middle, []string{"/h:/c:rprivate,ro,Z"}, nil,
		},
		"read-only is not recursive by itself": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", Readonly: true}, newEngine, nil,
			[]mount.Mount{bindOf("/h", true, mount.BindOptions{Propagation: "rprivate", CreateMountpoint: true, ReadOnlyNonRecursive: true})},
		},
		"recursive read-only": {
			&runtimeapi.Mount{HostPath: "/h", ContainerPath: "/c", Readonly: true, RecursiveReadOnly: true}, newEngine, nil,
			[]mount.Mount{bindOf("/h", true, mount.BindOptions{Propagation: "rprivate", CreateMountpoint: true, ReadOnlyForceRecursive: true})},
		},
		"no SELinux, no label to miss": {
			&runtimeapi.Mount{HostPath: "/h:h", ContainerPath: "/c", SelinuxRelabel: true}, oldEngine, nil,
			[]mount.Mount{bindOf("/h:h", false, mount.BindOptions{Propagation: "rprivate"})},
		},
		"images are for others": {
			&runtimeapi.Mount{ContainerPath: "/c", Image: &runtimeapi.ImageSpec{Image: "x"}}, newEngine, nil, nil,
		},
	} {
		binds, mounts, err := Mounts([]*runtimeapi.Mount{tc.m}, tc.f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.binds, binds) + cmp.Diff(tc.mounts, mounts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMountsRefused(t *testing.T) {
	t.Parallel()
	all := MountFeatures{CreateMountpoint: true, RecursiveReadOnly: true}
	for name, tc := range map[string]struct {
		m     *runtimeapi.Mount
		f     MountFeatures
		class func(error) bool
	}{
		"nil":                  {nil, all, errdefs.IsInvalidArgument},
		"no host path":         {&runtimeapi.Mount{ContainerPath: "/c"}, all, errdefs.IsInvalidArgument},
		"relative host path":   {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "h"}, all, errdefs.IsInvalidArgument},
		"unknown propagation":  {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h", Propagation: 9}, all, errdefs.IsInvalidArgument},
		"mount options":        {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h", MountOptions: []string{"noexec"}}, all, errdefs.IsNotImplemented},
		"recursive, not ro":    {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h", RecursiveReadOnly: true}, all, errdefs.IsInvalidArgument},
		"recursive and shared": {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h", Readonly: true, RecursiveReadOnly: true, Propagation: 2}, all, errdefs.IsInvalidArgument},
		"recursive, too old":   {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h", Readonly: true, RecursiveReadOnly: true}, MountFeatures{}, errdefs.IsNotImplemented},
		"a label past a colon": {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h:h", SelinuxRelabel: true}, MountFeatures{SELinux: true}, errdefs.IsNotImplemented},
		"a recursive label": {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h", SelinuxRelabel: true, Readonly: true, RecursiveReadOnly: true},
			MountFeatures{SELinux: true, RecursiveReadOnly: true}, errdefs.IsNotImplemented},
		"ids": {&runtimeapi.Mount{ContainerPath: "/c", HostPath: "/h", GidMappings: []*runtimeapi.IDMapping{{}}}, all, errdefs.IsNotImplemented},
	} {
		if _, _, err := Mounts([]*runtimeapi.Mount{tc.m}, tc.f); !tc.class(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPropagationPairs(t *testing.T) {
	t.Parallel()
	for value := range runtimeapi.MountPropagation_name {
		p := runtimeapi.MountPropagation(value)
		word, ok := propagations[p]
		if !ok || propagation(word) != p {
			t.Errorf("%s became %q, and then %s", p, word, propagation(word))
		}
	}
	for _, word := range []mount.Propagation{"", "private", "odd"} {
		if got := propagation(word); got != runtimeapi.MountPropagation_PROPAGATION_PRIVATE {
			t.Errorf("%q: got %s", word, got)
		}
	}
}

func TestCRIMounts(t *testing.T) {
	t.Parallel()
	if got := CRIMounts(nil, nil); got != nil {
		t.Errorf("nil: got %v", got)
	}
	got := CRIMounts([]container.MountPoint{
		{Type: mount.TypeBind, Source: "/h", Destination: "/c", RW: true, Mode: "z,rslave", Propagation: "rslave"},
		{Type: mount.TypeBind, Source: "/r", Destination: "/r"},
		{Type: mount.TypeVolume, Source: "/v", Destination: "/v", RW: true},
	}, &container.HostConfig{Mounts: []mount.Mount{{Target: "/r", BindOptions: &mount.BindOptions{ReadOnlyForceRecursive: true}}}})
	want := []*runtimeapi.Mount{
		{HostPath: "/h", ContainerPath: "/c", Propagation: 1, SelinuxRelabel: true},
		{HostPath: "/r", ContainerPath: "/r", Readonly: true, RecursiveReadOnly: true},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
