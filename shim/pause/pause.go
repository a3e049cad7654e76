// Package pause contains the sandbox image with the pause process, so that the first pod needs no registry. Ensure
// returns the image and loads or pulls it if the engine lacks it. The built-in image is identified by content, because
// an archive can give any image its name.
//
// The program is static, below one kilobyte, for amd64 and arm64. hack/generate.sh compiles it from src/pause.c.
package pause

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/jsonmessage"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/docker"
)

const domain = "crishim.local"

// Ref is the name of the built-in image. The tag is incremented when the program changes.
const Ref = domain + "/pause:1"

//go:embed pause-amd64
var programAMD64 []byte

//go:embed pause-arm64
var programARM64 []byte

type Engine interface {
	ImageInspect(ctx context.Context, ref string, options ...docker.ImageInspectOption) (image.InspectResponse, error)
	ImageLoad(ctx context.Context, input io.Reader, options ...docker.ImageLoadOption) (image.LoadResponse, error)
	ImagePull(ctx context.Context, ref string, options image.PullOptions) (io.ReadCloser, error)
}

func Image(configured string) string { return cmp.Or(configured, Ref) }

// CheckName rejects the reserved names of built-in images for pulls and loads.
func CheckName(name string) error {
	if named, err := reference.ParseNormalizedNamed(name); err == nil && reference.Domain(named) == domain {
		return fmt.Errorf("%s: names under %s/ are for images that are built in: %w", name, domain, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Ensure returns the sandbox image for an engine's architecture. The built-in image is never pulled; it is loaded if it
// is missing or another image has its name. A configured image is pulled if it is missing. Callers must create
// containers from the image's id, because the name may have moved to another image.
func Ensure(ctx context.Context, e Engine, configured, engineArch string) (image.InspectResponse, error) {
	ref := Image(configured)
	if ref == Ref {
		return ensureBuiltIn(ctx, e, engineArch)
	}
	img, err := e.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		if err := pull(ctx, e, ref); err != nil {
			return img, err
		}
		img, err = e.ImageInspect(ctx, ref)
	}
	if err != nil {
		return img, fmt.Errorf("sandbox image %s: %w", ref, err)
	}
	return img, nil
}

func ensureBuiltIn(ctx context.Context, e Engine, engineArch string) (image.InspectResponse, error) {
	own, err := build(engineArch)
	if err != nil {
		return image.InspectResponse{}, err
	}
	for loaded := false; ; loaded = true {
		img, err := e.ImageInspect(ctx, Ref)
		switch {
		case err == nil && own.is(img):
			return img, nil
		case err != nil && (loaded || !errdefs.IsNotFound(err)):
			return img, fmt.Errorf("sandbox image %s: %w", Ref, err)
		case loaded:
			return img, fmt.Errorf("image %s (%s) is not the built-in pause image, also after loading that: name another with --pod-infra-container-image: %w", Ref, img.ID, errdefs.ErrFailedPrecondition)
		}
		if err := own.load(ctx, e); err != nil {
			return img, err
		}
	}
}

type builtIn struct {
	ocispec.Image
	layer []byte
}

// build builds the image for an architecture, under the kernel's name (x86_64) or Go's name (amd64).
func build(engineArch string) (builtIn, error) {
	var program []byte
	b := builtIn{Image: ocispec.Image{Created: new(time.Unix(0, 0).UTC()), Platform: ocispec.Platform{OS: "linux"}}}
	switch engineArch {
	case "x86_64", "amd64":
		program, b.Architecture = programAMD64, "amd64"
	case "aarch64", "arm64":
		program, b.Architecture = programARM64, "arm64"
	default:
		return b, fmt.Errorf("no built-in pause image for %q: name one with --pod-infra-container-image: %w", engineArch, errdefs.ErrFailedPrecondition)
	}
	var err error
	if b.layer, err = pack([]file{{"pause", program, 0o755}}); err != nil {
		return b, err
	}
	b.Config = ocispec.ImageConfig{Entrypoint: []string{"/pause"}, WorkingDir: "/"}
	b.RootFS = ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(b.layer)}}
	b.History = []ocispec.History{{Created: b.Created, CreatedBy: "crishim"}}
	return b, nil
}

func (b builtIn) is(img image.InspectResponse) bool {
	if img.Config == nil || img.Os != b.OS || img.Architecture != b.Architecture || len(img.RootFS.Layers) != 1 || img.RootFS.Layers[0] != b.RootFS.DiffIDs[0].String() {
		return false
	}
	want, wantErr := json.Marshal(dockerspec.DockerOCIImageConfig{ImageConfig: b.Config})
	got, gotErr := json.Marshal(img.Config) // without empty fields, which engines encode differently
	return wantErr == nil && gotErr == nil && bytes.Equal(got, want)
}

func (b builtIn) load(ctx context.Context, e Engine) error {
	packed, err := b.archive()
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

// drain reads all progress messages. The operation is complete only at their end.
func drain(body io.ReadCloser) error {
	return errors.Join(jsonmessage.DisplayJSONMessagesStream(body, io.Discard, 0, false, nil), body.Close())
}

func (b builtIn) archive() ([]byte, error) {
	config, err := json.Marshal(b.Image)
	if err != nil {
		return nil, fmt.Errorf("pause image configuration: %w", err)
	}
	configName := digest.FromBytes(config).Encoded() + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{Ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, fmt.Errorf("pause image manifest: %w", err)
	}
	return pack([]file{{configName, config, 0o644}, {"layer.tar", b.layer, 0o644}, {"manifest.json", manifest, 0o644}})
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
