package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/pause"
)

// PullImage ends with the request, or when the engine reports no progress before the deadline.
func (s *Service) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	id, err := s.PullReporting(ctx, r, func(Progress) {})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: id}, nil
}

func (s *Service) PullReporting(ctx context.Context, r *runtimeapi.PullImageRequest, report func(Progress)) (string, error) {
	text := r.GetImage().GetImage()
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return "", fmt.Errorf("pull image %q: %w: %w", text, err, errdefs.ErrInvalidArgument)
	}
	if err := pause.CheckName(text); err != nil {
		return "", fmt.Errorf("pull image %w", err)
	}
	auth, err := convert.RegistryAuth(r.GetAuth())
	if err != nil {
		return "", fmt.Errorf("pull image %s: %w", text, err)
	}
	ref := engineReference(reference.TagNameOnly(named).String())
	if handler := r.GetImage().GetRuntimeHandler(); handler != "" {
		// The image is the same for all handlers, but CRI requires an error for unknown ones.
		info, err := s.Engine.Info(ctx)
		if err != nil {
			return "", fmt.Errorf("ask the docker engine for its runtimes: %w", err)
		}
		if _, err := convert.RuntimeHandler(handler, info); err != nil {
			return "", err
		}
	}
	if err := s.pull(ctx, ref, auth, report); err != nil {
		return "", err
	}
	i, found, err := s.inspect(ctx, ref)
	if err != nil {
		return "", err
	}
	if !found {
		return "", fmt.Errorf("pull image %s: the engine has no image of that name afterwards: %w", ref, errdefs.ErrNotFound)
	}
	return i.ID, nil
}

func (s *Service) pull(ctx context.Context, ref, auth string, report func(Progress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var deadline *time.Timer
	await := func(limit time.Duration) {
		if deadline != nil {
			deadline.Stop()
		}
		deadline = time.AfterFunc(limit, func() { cancel(fmt.Errorf("no progress for %s: %w", limit, errdefs.ErrAborted)) })
	}
	await(s.PullProgressDeadline)
	defer func() { deadline.Stop() }()
	body, err := s.Engine.ImagePull(ctx, ref, image.PullOptions{RegistryAuth: auth})
	if err == nil {
		layers := map[string]string{} // last status by layer
		err = readProgress(body, func(p Progress) {
			if p.ID != "" && !strings.HasPrefix(p.Status, "Pulling from ") { // the ID of this message is the tag, not a layer
				layers[p.ID] = p.Status
			}
			if unpacking(layers) {
				await(unpackFactor * s.PullProgressDeadline)
			} else {
				await(s.PullProgressDeadline)
			}
			report(p)
		})
		for _, id := range slices.Sorted(maps.Keys(layers)) {
			if err == nil && layers[id] == downloaded {
				report(Progress{ID: id, Status: "Pull complete"})
			}
		}
		err = errors.Join(err, body.Close())
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("pull image %s: %w", ref, cause)
	}
	return pullError(ref, err)
}

// unpackFactor extends the deadline while the engine unpacks layers: large ones take minutes on a slow disk.
const unpackFactor = 10

// downloaded is the last status of a layer if the engine uses the containerd image store. Other stores continue with
// Extracting.
const downloaded = "Download complete"

// unpacking reports whether the engine may send no messages for a long time, because it extracts or verifies a layer, or
// because all layers are downloaded and it unpacks them.
func unpacking(layers map[string]string) bool {
	some, all := false, true
	for _, status := range layers {
		switch status {
		case "Extracting", "Verifying Checksum":
			return true
		case downloaded:
			some = true
		case "Pull complete", "Already exists":
		default:
			all = false
		}
	}
	return some && all
}

type Progress struct {
	ID             string `json:"id"` // layer
	Status         string `json:"status"`
	Stream         string `json:"stream"` // line of the response to a load
	ProgressDetail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	// Engines since API 1.48 only set ErrorDetail.
	Error       string `json:"error"`
	ErrorDetail *struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

// streamError is an error in the progress stream, after a successful response.
type streamError struct{ text string }

func (e *streamError) Error() string { return e.text }

func readProgress(r io.Reader, report func(Progress)) error {
	d := json.NewDecoder(r)
	for {
		var p Progress
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the engine's pull messages: %w", err)
		}
		if p.ErrorDetail != nil && p.ErrorDetail.Message != "" {
			return &streamError{p.ErrorDetail.Message}
		}
		if p.Error != "" {
			return &streamError{p.Error}
		}
		report(p)
	}
}

// pullFailures classifies registry errors by the engine's text, first match first. The engine returns them without a
// class.
var pullFailures = []struct {
	class error
	texts []string
}{
	{errdefs.ErrUnauthenticated, []string{
		"unauthorized", "authentication required", "no basic auth credentials", "incorrect username or password",
	}},
	{errdefs.ErrPermissionDenied, []string{"pull access denied", "denied: ", "access to the resource is denied"}},
	// If the registry's response is not labelled as JSON, the engine's text has only the error codes, such as
	// manifest_unknown.
	{errdefs.ErrNotFound, []string{"manifest unknown", "name unknown", "manifest_unknown", "name_unknown", "not found", "no matching manifest"}},
	{errdefs.ErrInvalidArgument, []string{"invalid reference format"}},
	{errdefs.ErrResourceExhausted, []string{"toomanyrequests", "too many requests", "http 429 "}},
	{errdefs.ErrUnavailable, []string{
		"502 bad gateway", "503 service unavailable", "504 gateway timeout", "received unexpected http status: 5",
		"500 internal server error", "http 500 ", "http 502 ", "http 503 ", "http 504 ", "connection refused", "connection reset", "no such host",
		"i/o timeout", "tls handshake timeout", "client.timeout exceeded", "request canceled while waiting",
		"network is unreachable", "no route to host", "server misbehaving",
	}},
}

// pullError classifies an error. If the registry is unreachable or returns a server error, the text gets the prefix
// RegistryUnavailable, which kubelets recognize.
func pullError(ref string, err error) error {
	var inStream *streamError
	// The engine returns 500 for errors of the registry.
	if errdefs.IsNotFound(err) || errdefs.IsInternal(err) || errdefs.IsUnknown(err) || errors.As(err, &inStream) {
		text := strings.ToLower(err.Error())
		for _, f := range pullFailures {
			if !slices.ContainsFunc(f.texts, func(t string) bool { return strings.Contains(text, t) }) {
				continue
			}
			if errdefs.IsUnavailable(f.class) {
				return fmt.Errorf("RegistryUnavailable: pull image %s: %w", ref, &classified{err, f.class})
			}
			return fmt.Errorf("pull image %s: %w", ref, &classified{err, f.class})
		}
	}
	return fmt.Errorf("pull image %s: %w", ref, err)
}

// classified replaces the engine's class, which is "not found" for a refused login. It has no Unwrap, because docker.Text
// would then take the end of the engine's message for the class and remove it.
type classified struct{ err, class error }

func (c *classified) Error() string        { return c.err.Error() }
func (c *classified) Is(target error) bool { return errors.Is(c.class, target) }
