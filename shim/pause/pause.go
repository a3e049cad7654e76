// Package pause holds the image of the pod sandbox's only process, so that the
// first pod needs no registry. Ensure gives the id of the image to use and
// loads or pulls it when the engine has not got it.
//
// The process is a static program of well under a kilobyte, for amd64 and
// arm64; its source is src/pause.c, which hack/generate.sh compiles.
package pause

import (
	_ "embed"
	"fmt"

	"github.com/containerd/errdefs"
)

// Ref names the built-in image in the engine. The tag rises when the program
// changes.
const Ref = "crishim.local/pause:1"

//go:embed pause-amd64
var programAMD64 []byte

//go:embed pause-arm64
var programARM64 []byte

// Image is the reference that a configured image stands for.
func Image(configured string) string {
	if configured == "" {
		return Ref
	}
	return configured
}

// program gives the program for an engine's architecture, which engines name
// as the kernel does, and its name in images.
func program(engineArch string) ([]byte, string, error) {
	switch engineArch {
	case "x86_64", "amd64":
		return programAMD64, "amd64", nil
	case "aarch64", "arm64":
		return programARM64, "arm64", nil
	}
	return nil, "", fmt.Errorf("no built-in pause image for %q: name one with --pod-infra-container-image: %w", engineArch, errdefs.ErrFailedPrecondition)
}
