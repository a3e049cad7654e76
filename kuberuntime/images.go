package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapierrors "k8s.io/cri-api/pkg/errors"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/kuberuntime/manifest"
)

// Errors of images, with the names by which a kubelet shows them.
var (
	ErrImagePull        = errors.New("ErrImagePull")
	ErrImagePullBackOff = errors.New("ImagePullBackOff")
	ErrImageNeverPull   = errors.New("ErrImageNeverPull")
	ErrImageInspect     = errors.New("ImageInspectError")
	ErrInvalidImageName = errors.New("InvalidImageName")
)

// PullImage tries the credentials in turn, or none where there are none. It pulls one image at a time
// and not too many at once, as the options say.
func (m *Manager) PullImage(ctx context.Context, image string, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	if m.pulling != nil {
		select {
		case m.pulling <- struct{}{}:
			defer func() { <-m.pulling }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if m.o.PullsWait {
		if err := m.pullRate.Wait(ctx); err != nil {
			return "", err
		}
	} else if !m.pullRate.Allow() {
		return "", errors.New("pull QPS exceeded")
	}
	pull := m.o.Pull
	if pull == nil {
		pull = func(ctx context.Context, image string, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
			resp, err := m.image.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}, Auth: auth, SandboxConfig: sandbox})
			return resp.GetImageRef(), err
		}
	}
	if len(auths) == 0 {
		auths = []*runtimeapi.AuthConfig{nil}
	}
	var errs []error
	for _, auth := range auths {
		ref, err := pull(ctx, image, auth, sandbox)
		if err == nil {
			return ref, nil
		}
		errs = append(errs, err)
	}
	return "", inOneLine(errs...)
}

// GetImageRef is what the runtime knows an image by, "" if it is not there.
func (m *Manager) GetImageRef(ctx context.Context, image string) (string, error) {
	found, err := m.imageStatus(ctx, image)
	return found.GetId(), err
}

func (m *Manager) imageStatus(ctx context.Context, image string) (*runtimeapi.Image, error) {
	resp, err := m.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return resp.GetImage(), err
}

// ListImages lists all images.
func (m *Manager) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := m.image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return resp.GetImages(), err
}

// RemoveImage removes an image.
func (m *Manager) RemoveImage(ctx context.Context, image string) error {
	_, err := m.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return err
}

// ImageStats adds up the sizes of all images; layers that images share count for each.
func (m *Manager) ImageStats(ctx context.Context) (uint64, error) {
	images, err := m.ListImages(ctx)
	if err != nil {
		return 0, err
	}
	var total uint64
	for _, image := range images {
		total += image.GetSize()
	}
	return total, nil
}

// ensureImage applies the pull policy and returns what the runtime knows the image by.
func (m *Manager) ensureImage(ctx context.Context, p *v1.Pod, container, image string, policy v1.PullPolicy, set *manifest.Set, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	if _, err := reference.ParseAnyReference(image); err != nil {
		m.waits(p, container, EventFailed, ErrInvalidImageName, "image name %q: %v", image, err)
		return nil, fmt.Errorf("%w: %q: %w", ErrInvalidImageName, image, err)
	}
	present, err := m.imageStatus(ctx, image)
	if err != nil {
		m.waits(p, container, EventFailed, ErrImageInspect, "inspect image %s: %v", image, err)
		return nil, fmt.Errorf("%w: %w", ErrImageInspect, err)
	}
	if policy != v1.PullAlways && present.GetId() != "" {
		m.event(p, container, EventPulled, "image %s is already present", image)
		return present, nil
	}
	if policy == v1.PullNever {
		m.waits(p, container, EventFailed, ErrImageNeverPull, "image %s is not present and its policy is Never", image)
		return nil, fmt.Errorf("%w: %s is not present", ErrImageNeverPull, image)
	}
	if err := m.pullFor(ctx, p, container, image, set, sandbox); err != nil {
		return nil, err
	}
	pulled, err := m.imageStatus(ctx, image)
	if err == nil && pulled.GetId() == "" {
		err = errors.New("it is not there after the pull")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrImageInspect, image, err)
	}
	return pulled, nil
}

func (m *Manager) pullFor(ctx context.Context, p *v1.Pod, container, image string, set *manifest.Set, sandbox *runtimeapi.PodSandboxConfig) error {
	key := string(p.UID) + "_" + image
	start := m.o.Now()
	if left, news := m.pullFails.wait(key, m.pullFails.last(key), start); left > 0 {
		if news {
			m.waits(p, container, EventBackOff, ErrImagePullBackOff, "back-off pulling image %s for another %s", image, left.Round(time.Second))
		}
		return &retryError{err: fmt.Errorf("%w: %s", ErrImagePullBackOff, image), after: left}
	}
	m.event(p, container, EventPulling, "pulling image %s", image)
	auths, missing, err := m.credentials(ctx, p, image, set)
	if err == nil {
		_, err = m.PullImage(ctx, image, auths, sandbox)
	}
	if err != nil {
		now := m.o.Now()
		m.pullFails.next(key, now, now)
		err = withPullHint(inOneLine(err, missing))
		name := pullErrorName(err)
		m.waits(p, container, EventFailed, name, "pull image %s: %v", image, err)
		return fmt.Errorf("%w: pull image %s: %w", name, image, err)
	}
	m.pullFails.reset(key)
	m.event(p, container, EventPulled, "pulled image %s in %s", image, m.o.Now().Sub(start).Round(time.Millisecond))
	return nil
}

// pullErrorName keeps the runtime's own name of a failure where it has one: the CRI puts it
// at the start of the message, and a client may have worded that again.
func pullErrorName(err error) error {
	for ; err != nil; err = errors.Unwrap(err) {
		for _, named := range []error{criapierrors.ErrRegistryUnavailable, criapierrors.ErrSignatureValidationFailed} {
			if strings.HasPrefix(status.Convert(err).Message(), named.Error()) {
				return named
			}
		}
	}
	return ErrImagePull
}

// several are the failures of attempts at one thing, in one line. Attempts that failed alike
// are told of once.
type several []error

// inOneLine is what went wrong in several attempts; nil where nothing did.
func inOneLine(errs ...error) error {
	var out several
	for _, err := range errs {
		if err != nil && !slices.ContainsFunc(out, func(e error) bool { return e.Error() == err.Error() }) {
			out = append(out, err)
		}
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return out
}

func (s several) Error() string {
	var texts []string
	for _, err := range s {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (s several) Unwrap() []error { return s }

// refusedError is a pull that failed for its login.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// Hint is the next step.
func (e *refusedError) Hint() string {
	return "name a Secret with a login for this registry in imagePullSecrets, or log in on this host with `docker login`"
}

// withPullHint adds what to do about a refused login.
func withPullHint(err error) error {
	if err != nil && client.IsRefused(err) {
		return &refusedError{err}
	}
	return err
}
