package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

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
	if handler := r.GetImage().GetRuntimeHandler(); handler != "" {
		// The CRI demands that a handler is refused that the engine has no runtime for;
		// the image itself is the same for all of them.
		info, err := s.engine.Info(ctx)
		if err != nil {
			return "", fmt.Errorf("ask the docker engine for its runtimes: %w", err)
		}
		if _, err := convert.RuntimeHandler(handler, info); err != nil {
			return "", err
		}
	}
	if err := s.Pull(ctx, ref, auth, report); err != nil {
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

var errNoProgress = errors.New("no progress")

// Progress is one message of the engine about a pull.
type Progress struct {
	ID             string `json:"id"` // layer
	Status         string `json:"status"`
	ProgressDetail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	// Engines from API 1.48 on only fill ErrorDetail.
	Error       string `json:"error"`
	ErrorDetail *struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

func (p Progress) failure() string {
	if p.ErrorDetail != nil && p.ErrorDetail.Message != "" {
		return p.ErrorDetail.Message
	}
	return p.Error
}

// streamError is an error that the engine wrote into the progress messages;
// the call itself has already answered with success by then.
type streamError struct{ text string }

func (e *streamError) Error() string { return e.text }

// readProgress reads messages up to the end, or to the first that is an error.
func readProgress(r io.Reader, seen func(Progress)) error {
	d := json.NewDecoder(r)
	for {
		var p Progress
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the engine's pull messages: %w", err)
		}
		if text := p.failure(); text != "" {
			return &streamError{text}
		}
		seen(p)
	}
}

// watchdog calls expire when no message was seen for a while. It is patient
// while a layer is being unpacked: the engine says nothing for as long as one
// large file takes, and nothing is stuck.
type watchdog struct {
	mu       sync.Mutex
	deadline time.Duration
	timer    *time.Timer
	busy     map[string]bool // layers being unpacked
}

func newWatchdog(deadline time.Duration, expire func()) *watchdog {
	w := &watchdog{deadline: deadline, busy: map[string]bool{}}
	w.timer = time.AfterFunc(deadline, expire)
	return w
}

func (w *watchdog) seen(p Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch p.Status {
	case "Extracting", "Verifying Checksum":
		w.busy[p.ID] = true
	default:
		delete(w.busy, p.ID)
	}
	if len(w.busy) > 0 {
		w.timer.Stop()
		return
	}
	w.timer.Reset(w.deadline)
}

func (w *watchdog) stop() { w.timer.Stop() }

// pullFailures tells classes of pull errors apart by the engine's text, because
// the engine passes on registry errors without a class: most come inside the
// progress messages, after the call has answered 200. First match counts.
var pullFailures = []struct {
	class error
	texts []string
}{
	{errdefs.ErrUnauthenticated, []string{
		"unauthorized", "authentication required", "no basic auth credentials", "incorrect username or password",
	}},
	{errdefs.ErrPermissionDenied, []string{"pull access denied", "denied: ", "access to the resource is denied"}},
	// The codes are what is left of an answer that is not labelled as JSON.
	{errdefs.ErrNotFound, []string{"manifest unknown", "name unknown", "manifest_unknown", "name_unknown", "not found", "no matching manifest"}},
	{errdefs.ErrInvalidArgument, []string{"invalid reference format"}},
	{errRegistryUnavailable, []string{
		"502 bad gateway", "503 service unavailable", "504 gateway timeout", "received unexpected http status: 5",
		"500 internal server error", "toomanyrequests", "connection refused", "connection reset", "no such host",
		"i/o timeout", "tls handshake timeout", "client.timeout exceeded", "request canceled while waiting",
		"network is unreachable", "no route to host", "server misbehaving",
	}},
}

var errRegistryUnavailable = errors.New("registry")

// pullError gives a failed pull its class. A registry that does not answer has
// the prefix that kubelets look for.
func pullError(ref string, err error) error {
	var inStream *streamError
	// Some answers of the engine have a status of their own; 500 stands for
	// "the registry said something".
	known := errdefs.IsNotFound(err) || errdefs.IsInternal(err) || errdefs.IsUnknown(err) || errors.As(err, &inStream)
	if !known {
		return fmt.Errorf("pull image %s: %w", ref, err)
	}
	switch class := pullFailure(err.Error()); {
	case class == nil:
		return fmt.Errorf("pull image %s: %w", ref, err)
	case errors.Is(class, errRegistryUnavailable):
		return fmt.Errorf("RegistryUnavailable: pull image %s: %w", ref, &classified{err, errdefs.ErrUnavailable})
	default:
		return fmt.Errorf("pull image %s: %w", ref, &classified{err, class})
	}
}

func pullFailure(text string) error {
	text = strings.ToLower(text)
	for _, f := range pullFailures {
		for _, t := range f.texts {
			if strings.Contains(text, t) {
				return f.class
			}
		}
	}
	return nil
}

// classified is an error's text under another class; the engine's own class,
// which is "not found" for a refused login, no longer counts. It hides the
// class from errors.Unwrap: its text does not end with the name of one.
type classified struct{ err, class error }

func (c *classified) Error() string        { return c.err.Error() }
func (c *classified) Is(target error) bool { return errors.Is(c.class, target) }
