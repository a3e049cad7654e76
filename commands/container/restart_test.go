package container

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLogPathOfAttempt(t *testing.T) {
	t.Parallel()
	for old, want := range map[string]string{
		"": "", "0.log": "12.log", "main/0.log": "main/12.log", "main.3.log": "main.12.log", "main.log": "main.12.log",
		"a.b.log": "a.b.12.log", "output": "output.12.log", "log": "12.log", "v1.2.log": "v1.12.log",
	} {
		c := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 12}, LogPath: old}
		if got := logPathOfAttempt(c); got != want {
			t.Errorf("%q: got %q, want %q", old, got, want)
		}
	}
}
