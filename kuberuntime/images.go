package kuberuntime

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config/types"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapierrors "k8s.io/cri-api/pkg/errors"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/auth"
	"github.com/crishim/crishim/kuberuntime/manifest"
)

// Errors of images, with the kubelet's names.
var (
	ErrImagePull        = errors.New("ErrImagePull")
	ErrImagePullBackOff = errors.New("ImagePullBackOff")
	ErrImageNeverPull   = errors.New("ErrImageNeverPull")
	ErrImageInspect     = errors.New("ImageInspectError")
	ErrInvalidImageName = errors.New("InvalidImageName")
)

// PullImage pulls an image within the limits of the options and returns the runtime's reference. It tries the
// credentials in order.
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

// GetImageRef returns the runtime's id of an image, or "" for a missing image.
func (m *Manager) GetImageRef(ctx context.Context, image string) (string, error) {
	found, err := m.imageStatus(ctx, image)
	return found.GetId(), err
}

func (m *Manager) imageStatus(ctx context.Context, image string) (*runtimeapi.Image, error) {
	resp, err := m.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return resp.GetImage(), err
}

func (m *Manager) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := m.image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return resp.GetImages(), err
}

func (m *Manager) RemoveImage(ctx context.Context, image string) error {
	_, err := m.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return err
}

// ImageStats returns the total size of all images. Shared layers count once per image.
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

// ensureImage pulls an image as its pull policy requires, and returns the image, like EnsureImageExists of the
// kubelet's imageManager.
func (m *Manager) ensureImage(ctx context.Context, p *v1.Pod, container, image string, policy v1.PullPolicy, set *manifest.Set, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	if _, err := reference.ParseAnyReference(image); err != nil {
		m.reportWaiting(p, container, eventFailed, ErrInvalidImageName, "image name %q: %v", image, err)
		return nil, fmt.Errorf("%w: %q: %w", ErrInvalidImageName, image, err)
	}
	if policy != v1.PullAlways {
		present, err := m.imageStatus(ctx, image)
		if err != nil {
			m.reportWaiting(p, container, eventFailed, ErrImageInspect, "inspect image %s: %v", image, err)
			return nil, fmt.Errorf("%w: %w", ErrImageInspect, err)
		}
		if present.GetId() != "" {
			m.event(p, container, eventPulled, "image %s is already present", image)
			return present, nil
		}
	}
	if policy == v1.PullNever {
		m.reportWaiting(p, container, eventFailed, ErrImageNeverPull, "image %s is not present and its policy is Never", image)
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
	if left, whole, isNew := m.imageBackOff.wait(key, m.imageBackOff.last(key), start); left > 0 {
		if isNew {
			m.reportWaiting(p, container, eventBackOff, ErrImagePullBackOff, "back-off %s pulling image %s", whole, image)
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
		m.imageBackOff.next(key, now, now)
		if err = inOneLine(err, missing); client.IsRefused(err) {
			err = &refusedError{err}
		}
		name := pullErrorName(err)
		m.reportWaiting(p, container, eventFailed, name, "pull image %s: %v", image, err)
		return fmt.Errorf("%w: pull image %s: %w", name, image, err)
	}
	m.imageBackOff.reset(key)
	m.event(p, container, eventPulled, "pulled image %s in %s", image, m.o.Now().Sub(start).Round(time.Millisecond))
	return nil
}

// pullErrorName returns the CRI's name of a failed pull, else ErrImagePull. The CRI puts the name at the start of the
// message. The loop unwraps err, because a client may have reworded the message.
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

// inOneLine joins errors with semicolons. It skips nil and repeated texts, and returns nil without errors.
func inOneLine(errs ...error) (all error) {
	seen := map[string]bool{}
	for _, err := range errs {
		switch {
		case err == nil || seen[err.Error()]:
			continue
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
		seen[err.Error()] = true
	}
	return all
}

// refusedError is the error of a pull for which the registry refused the credentials.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

func (e *refusedError) Hint() string {
	return "name a Secret with a login for this registry in imagePullSecrets, or log in on this host with `docker login`"
}

// credentials returns the matching credentials of the pod's imagePullSecrets, then of the host, like the kubelet's
// keyring. missing reports missing Secrets and unreadable credentials of the host. The pull is tried without them.
func (m *Manager) credentials(ctx context.Context, p *v1.Pod, image string, set *manifest.Set) (auths []*runtimeapi.AuthConfig, missing, err error) {
	for _, ref := range p.Spec.ImagePullSecrets {
		secret := set.Secrets[p.Namespace+"/"+ref.Name]
		if secret == nil {
			missing = inOneLine(missing, fmt.Errorf("secret %s/%s not found", p.Namespace, ref.Name))
			continue
		}
		found, err := secretAuths(secret, image)
		if err != nil {
			return nil, nil, fmt.Errorf("secret %s/%s: %w", p.Namespace, ref.Name, err)
		}
		auths = append(auths, found...)
	}
	if m.o.Auth == nil {
		return auths, missing, nil
	}
	host, err := m.o.Auth(ctx, image)
	if host != nil {
		auths = append(auths, host)
	}
	return auths, inOneLine(missing, err), ctx.Err()
}

// secretAuths returns the entries of a pull secret that match an image, the most specific entry first. As in the
// kubelet, a malformed entry makes the whole secret invalid.
func secretAuths(secret *v1.Secret, image string) ([]*runtimeapi.AuthConfig, error) {
	key := v1.DockerConfigJsonKey
	data, found := secret.Data[key]
	if !found {
		key = v1.DockerConfigKey
		if data, found = secret.Data[key]; !found {
			return nil, nil
		}
		data = slices.Concat([]byte(`{"auths":`), data, []byte("}"))
	}
	// The reader of docker/cli refuses files that a kubelet accepts: an empty user name next to a token, base64 without
	// padding, and other keys with unexpected types.
	var file struct {
		Auths map[string]types.AuthConfig `json:"auths"`
	}
	err := json.Unmarshal(data, &file)
	for server, e := range file.Auths {
		e.ServerAddress = server
		if e.Auth != "" && err == nil {
			e.Username, e.Password, err = decodeAuth(e.Auth)
		}
		file.Auths[server] = e
	}
	if err != nil {
		// The decoder's message may contain a password.
		return nil, fmt.Errorf("%s is no docker configuration, or an auth in it is not the base64 form of user:password", key)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(slices.Collect(maps.Values(file.Auths)), func(e types.AuthConfig) bool {
		return !auth.MatchesImage(e.ServerAddress, named.Name())
	})
	slices.SortFunc(entries, func(a, b types.AuthConfig) int {
		return cmp.Or(len(b.ServerAddress)-len(a.ServerAddress), strings.Compare(a.ServerAddress, b.ServerAddress))
	})
	var auths []*runtimeapi.AuthConfig
	for _, e := range entries {
		// As in the kubelet, ServerAddress stays empty: containerd expects a URL, and most entries are not URLs.
		auths = append(auths, &runtimeapi.AuthConfig{
			Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken,
		})
	}
	return auths, nil
}

// decodeAuth decodes the base64 form of user:password, with or without padding.
func decodeAuth(auth string) (user, password string, err error) {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return "", "", err
	}
	user, password, found := strings.Cut(string(text), ":")
	if !found {
		return "", "", errors.New("no colon")
	}
	return user, strings.Trim(password, "\x00"), nil
}
