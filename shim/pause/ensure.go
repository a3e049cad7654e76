package pause

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"

	"github.com/crishim/crishim/shim/docker"
)

// Engine is what Ensure needs of the Docker client.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	ImageInspect(ctx context.Context, ref string, options ...docker.ImageInspectOption) (image.InspectResponse, error)
	ImageLoad(ctx context.Context, input io.Reader, options ...docker.ImageLoadOption) (image.LoadResponse, error)
	ImagePull(ctx context.Context, ref string, options image.PullOptions) (io.ReadCloser, error)
}

// Ensure gives the id of the sandbox image. The built-in one is loaded where it
// is missing and never pulled; a configured one is pulled where it is missing.
func Ensure(ctx context.Context, e Engine, configured string) (string, error) {
	ref := Image(configured)
	id, err := inspect(ctx, e, ref)
	if !errdefs.IsNotFound(err) {
		return id, err
	}
	if ref == Ref {
		err = load(ctx, e)
	} else {
		err = pull(ctx, e, ref)
	}
	if err != nil {
		return "", err
	}
	return inspect(ctx, e, ref)
}

func inspect(ctx context.Context, e Engine, ref string) (string, error) {
	img, err := e.ImageInspect(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("sandbox image %s: %w", ref, err)
	}
	return img.ID, nil
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
	if err != nil {
		return fmt.Errorf("load the built-in pause image: %w", err)
	}
	if err := drain(resp.Body); err != nil {
		return fmt.Errorf("load the built-in pause image: %w", err)
	}
	return nil
}

func pull(ctx context.Context, e Engine, ref string) error {
	body, err := e.ImagePull(ctx, ref, image.PullOptions{})
	if err != nil {
		return fmt.Errorf("pull the sandbox image %s: %w", ref, err)
	}
	if err := drain(body); err != nil {
		return fmt.Errorf("pull the sandbox image %s: %w", ref, err)
	}
	return nil
}

// drain reads the engine's progress messages to the end, which is when the work
// is done. A failure is one of the messages.
func drain(body io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, body.Close()) }()
	messages := json.NewDecoder(body)
	for {
		var m struct {
			Error       string `json:"error"`
			ErrorDetail struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		err := messages.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the engine's answer: %w", err)
		case m.ErrorDetail.Message != "":
			return errors.New(m.ErrorDetail.Message)
		case m.Error != "":
			return errors.New(m.Error)
		}
	}
}
