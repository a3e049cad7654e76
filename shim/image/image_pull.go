package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

// PullImage pulls an image and answers with the id under which every other RPC
// knows it. The pull ends with the request: when the client goes away or its
// time is up, and when the engine says nothing for the progress deadline.
func (s *Service) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	id, err := s.PullReporting(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: id}, nil
}

// PullReporting is PullImage that hands each of the engine's progress messages
// to report, which may be nil. It returns the image's id.
func (s *Service) PullReporting(ctx context.Context, r *runtimeapi.PullImageRequest, report func(Progress)) (string, error) {
	ref, auth, err := pullPlan(r)
	if err != nil {
		return "", err
	}
	if err := knownHandler(ctx, s.engine, r.GetImage().GetRuntimeHandler()); err != nil {
		return "", err
	}
	if err := s.Pull(ctx, ref, auth, report); err != nil {
		return "", err
	}
	i, found, err := inspect(ctx, s.engine, ref)
	if err != nil {
		return "", err
	}
	if !found {
		return "", fmt.Errorf("pull image %s: the engine has no image of that name afterwards: %w", ref, errdefs.ErrNotFound)
	}
	return i.ID, nil
}

func pullPlan(r *runtimeapi.PullImageRequest) (ref, auth string, err error) {
	text := r.GetImage().GetImage()
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return "", "", fmt.Errorf("pull image %q: %w: %w", text, err, errdefs.ErrInvalidArgument)
	}
	auth, err = convert.RegistryAuth(r.GetAuth())
	if err != nil {
		return "", "", fmt.Errorf("pull image %s: %w", text, err)
	}
	return engineReference(reference.TagNameOnly(named).String()), auth, nil
}

// knownHandler refuses a runtime handler that the engine has no runtime for,
// as the CRI demands; the image itself is the same for all of them.
func knownHandler(ctx context.Context, e puller, handler string) error {
	if handler == "" {
		return nil
	}
	info, err := e.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask the docker engine for its runtimes: %w", err)
	}
	_, err = convert.RuntimeHandler(handler, info)
	return err
}

// Pull pulls ref and hands each of the engine's progress messages to report,
// which may be nil.
func (s *Service) Pull(ctx context.Context, ref, auth string, report func(Progress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := newWatchdog(s.deadline, func() { cancel(errNoProgress) })
	defer watch.stop()
	err := s.pull(ctx, ref, auth, func(p Progress) {
		watch.seen(p)
		if report != nil {
			report(p)
		}
	})
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, errNoProgress) {
		return fmt.Errorf("pull image %s: no progress for %s: %w", ref, s.deadline, errdefs.ErrAborted)
	} else if cause != nil {
		return fmt.Errorf("pull image %s: %w", ref, cause)
	}
	return pullError(ref, err)
}

func (s *Service) pull(ctx context.Context, ref, auth string, seen func(Progress)) error {
	body, err := s.engine.ImagePull(ctx, ref, image.PullOptions{RegistryAuth: auth})
	if err != nil {
		return err
	}
	return errors.Join(readProgress(body, seen), body.Close())
}
