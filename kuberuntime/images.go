package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/distribution/reference"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// PullImage tries the credentials in turn, or none where there are none.
func (m *Manager) PullImage(ctx context.Context, image string, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	return m.puller.pull(ctx, image, auths, sandbox)
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
	if left, news := m.puller.backoff.wait(key, m.puller.backoff.last(key), start); left > 0 {
		if news {
			m.waits(p, container, EventBackOff, ErrImagePullBackOff, "back-off pulling image %s for another %s", image, left.Round(time.Second))
		}
		return &retryError{err: fmt.Errorf("%w: %s", ErrImagePullBackOff, image), after: left}
	}
	m.event(p, container, EventPulling, "pulling image %s", image)
	auths, missing, err := m.credentials(ctx, p, image, set)
	if err == nil {
		_, err = m.puller.pull(ctx, image, auths, sandbox)
	}
	if err != nil {
		now := m.o.Now()
		m.puller.backoff.next(key, now, now)
		err = withPullHint(inOneLine(err, missing))
		name := pullErrorName(err)
		m.waits(p, container, EventFailed, name, "pull image %s: %v", image, err)
		return fmt.Errorf("%w: pull image %s: %w", name, image, err)
	}
	m.puller.backoff.reset(key)
	m.event(p, container, EventPulled, "pulled image %s in %s", image, m.o.Now().Sub(start).Round(time.Millisecond))
	return nil
}

// puller pulls images: serially or not, and not too many at once.
type puller struct {
	one     func(context.Context, string, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error)
	serial  chan struct{} // holds one token while nobody pulls; nil for parallel pulls
	limiter *rate.Limiter
	patient bool // a pull beyond the rate waits and does not fail
	backoff *backoff
}

func newPuller(o Options, image runtimeapi.ImageServiceClient) *puller {
	p := &puller{one: o.Pull, patient: o.PatientPulls, backoff: newBackoff(), limiter: pullLimiter(o.PullQPS, o.PullBurst)}
	if o.SerialPulls {
		p.serial = make(chan struct{}, 1)
	}
	if p.one == nil {
		p.one = func(ctx context.Context, name string, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
			resp, err := image.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: name}, Auth: auth, SandboxConfig: sandbox})
			return resp.GetImageRef(), err
		}
	}
	return p
}

// pullLimiter limits pulls to qps; 0 is no limit.
func pullLimiter(qps float64, burst int) *rate.Limiter {
	if qps <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(qps), max(burst, 1))
}

func (p *puller) pull(ctx context.Context, image string, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	if p.serial != nil {
		select {
		case p.serial <- struct{}{}:
			defer func() { <-p.serial }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if p.patient {
		if err := p.limiter.Wait(ctx); err != nil {
			return "", err
		}
	} else if !p.limiter.Allow() {
		return "", errors.New("pull QPS exceeded")
	}
	if len(auths) == 0 {
		return p.one(ctx, image, nil, sandbox)
	}
	var errs []error
	for _, auth := range auths {
		ref, err := p.one(ctx, image, auth, sandbox)
		if err == nil {
			return ref, nil
		}
		errs = append(errs, err)
	}
	return "", inOneLine(errs...)
}
