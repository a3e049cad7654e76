// Package pause holds the image of the pod sandbox's only process, so that the
// first pod needs no registry. Ensure returns the image to use and
// loads or pulls it where the engine does not have it.
//
// The process is a static program of well under a kilobyte, for amd64 and
// arm64; its source is src/pause.c, which hack/generate.sh compiles.
package pause

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/crishim/crishim/shim/docker"
)

// Ref names the built-in image in the engine. The tag rises when the program
// changes.
const Ref = "crishim.local/pause:1"

//go:embed pause-amd64
var programAMD64 []byte

//go:embed pause-arm64
var programARM64 []byte

// Engine is what Ensure needs of the Docker client.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	ImageInspect(ctx context.Context, ref string, options ...docker.ImageInspectOption) (image.InspectResponse, error)
	ImageLoad(ctx context.Context, input io.Reader, options ...docker.ImageLoadOption) (image.LoadResponse, error)
	ImagePull(ctx context.Context, ref string, options image.PullOptions) (io.ReadCloser, error)
}

// Image returns the reference of the sandbox image, where another may be configured.
func Image(configured string) string { return cmp.Or(configured, Ref) }

// Ensure returns the sandbox image. The built-in one is loaded where it
// is missing and never pulled; a configured one is pulled where it is missing.
func Ensure(ctx context.Context, e Engine, configured string) (image.InspectResponse, error) {
	ref := Image(configured)
	img, err := e.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		if ref == Ref {
			err = load(ctx, e)
		} else {
			err = pull(ctx, e, ref)
		}
		if err != nil {
			return img, err
		}
		img, err = e.ImageInspect(ctx, ref)
	}
	if err != nil {
		return img, fmt.Errorf("sandbox image %s: %w", ref, err)
	}
	return img, nil
}

func load(ctx context.Context, e Engine) error {
	info, err := e.Info(ctx)
	if err != nil {
		return fmt.Errorf("the engine's architecture: %w", err)
	}
	binary, arch, err := program(info.Architecture)
	if err != nil {
		return err
	}
	packed, err := archive(binary, arch)
	if err != nil {
		return err
	}
	resp, err := e.ImageLoad(ctx, bytes.NewReader(packed), docker.ImageLoadWithQuiet(true))
	if err == nil {
		err = drain(resp.Body)
	}
	if err != nil {
		return fmt.Errorf("load the built-in pause image: %w", err)
	}
	return nil
}

func pull(ctx context.Context, e Engine, ref string) error {
	body, err := e.ImagePull(ctx, ref, image.PullOptions{})
	if err == nil {
		err = drain(body)
	}
	if err != nil {
		return fmt.Errorf("pull the sandbox image %s: %w", ref, err)
	}
	return nil
}

// drain reads the engine's progress messages to the end, which is when the work
// is done. A failure is one of the messages.
func drain(body io.ReadCloser) error {
	return errors.Join(jsonmessage.DisplayJSONMessagesStream(body, io.Discard, 0, false, nil), body.Close())
}

// program returns the program for an engine's architecture, which engines name
// as the kernel does, and the architecture's name in images.
func program(engineArch string) ([]byte, string, error) {
	switch engineArch {
	case "x86_64", "amd64":
		return programAMD64, "amd64", nil
	case "aarch64", "arm64":
		return programARM64, "arm64", nil
	}
	return nil, "", fmt.Errorf("no built-in pause image for %q: name one with --pod-infra-container-image: %w", engineArch, errdefs.ErrFailedPrecondition)
}

// archive packs a program as an image of one layer in the form that the
// engine's load call reads. Equal input gives equal bytes.
func archive(program []byte, arch string) ([]byte, error) {
	layer, err := pack([]file{{"pause", program, 0o755}})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": arch,
		"os":           "linux",
		"created":      time.Unix(0, 0).UTC(),
		"config":       map[string]any{"Entrypoint": []string{"/pause"}, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history":      []map[string]any{{"created": time.Unix(0, 0).UTC(), "created_by": "crishim"}},
	})
	if err != nil {
		return nil, fmt.Errorf("pause image configuration: %w", err)
	}
	configName := digest(config) + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{Ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, fmt.Errorf("pause image manifest: %w", err)
	}
	return pack([]file{{configName, config, 0o644}, {"layer.tar", layer, 0o644}, {"manifest.json", manifest, 0o644}})
}

type file struct {
	name string
	body []byte
	mode int64
}

func pack(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.body)), Mode: f.mode, ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return b.Bytes(), nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
