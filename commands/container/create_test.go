package container

import (
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestImagesAreRememberedAsTheUserCalledThem: the user's names of the container's image and of mounted images are
// kept.
func TestImagesAreRememberedAsTheUserCalledThem(t *testing.T) {
	t.Parallel()
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "busybox"},
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/data", Image: &runtimeapi.ImageSpec{Image: "data:1"}},
			{ContainerPath: "/own", Image: &runtimeapi.ImageSpec{Image: "sha256:abc", UserSpecifiedImage: "own:1"}},
			{ContainerPath: "/host", HostPath: "/tmp"},
		},
	}
	completeContainer(config, &runtimeapi.PodSandboxConfig{})
	got := []string{config.GetImage().GetUserSpecifiedImage()}
	for _, m := range config.GetMounts() {
		got = append(got, m.GetImage().GetUserSpecifiedImage())
	}
	if want := []string{"busybox", "data:1", "own:1", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
