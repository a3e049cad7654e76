package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
)

const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestMatches(t *testing.T) {
	t.Parallel()
	s := dockerimage.Summary{ID: "sha256:abcdef0123", RepoTags: []string{"busybox:1.36", "reg.example:5000/a/b:v1"}, RepoDigests: []string{"busybox@" + digest}}
	for filter, want := range map[string]bool{
		"busybox": true, "busybox:1.36": true, "docker.io/library/busybox:1.36": true, "busybox:1.35": false,
		"busybox@" + digest: true, "busybox:any@" + digest: true, "reg.example:5000/a/b": true, "reg.example:5000/a": false,
		"sha256:abcdef0123": true, "abcdef": true, "sha256:ab": true, "fedcba": false, "busy*": true, "*/a/b": true,
		"<none>:<none>": false, "Not A Ref": false,
	} {
		if got := matches(s, filter); got != want {
			t.Errorf("%q: got %v, want %v", filter, got, want)
		}
	}
	if matches(dockerimage.Summary{ID: "sha256:1", RepoTags: []string{"<none>:<none>"}}, "busybox") {
		t.Error("an image without a name answers to one")
	}
}

func TestEngineReference(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"busybox": "busybox", "busybox:1": "busybox:1", "abcdef": "abcdef", "Odd Ref": "Odd Ref",
		"busybox:1@" + digest: "docker.io/library/busybox@" + digest,
	} {
		if got := engineReference(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestPullErrorClasses(t *testing.T) {
	t.Parallel()
	for text, is := range map[string]func(error) bool{
		"manifest for a:b not found: manifest unknown":                                      errdefs.IsNotFound,
		"pull access denied for a, repository does not exist or may require 'docker login'": errdefs.IsPermissionDenied,
		"Head \"http://r/v2/a\": no basic auth credentials":                                 errdefs.IsUnauthorized,
		`unknown: {"errors":[{"code":"MANIFEST_UNKNOWN","message":"Unknown manifest"}]}`:    errdefs.IsNotFound,
		"received unexpected HTTP status: 503 Service Unavailable":                          errdefs.IsUnavailable,
		"dial tcp 127.0.0.1:1: connect: connection refused":                                 errdefs.IsUnavailable,
	} {
		if got := pullError("a:b", &streamError{text}); !is(got) || !strings.Contains(got.Error(), text) {
			t.Errorf("%q: got %v", text, got)
		}
	}
	if got := pullError("a:b", context.Canceled); !errors.Is(got, context.Canceled) {
		t.Errorf("cancelled: got %v", got)
	}
	odd := errors.New("something else")
	if got := pullError("a:b", odd); !errors.Is(got, odd) {
		t.Errorf("unknown: got %v", got)
	}
}

func TestReadProgress(t *testing.T) {
	t.Parallel()
	var seen []string
	err := readProgress(strings.NewReader(`{"status":"A","id":"1"}{"status":"B"}{"errorDetail":{"message":"broken"}}{"status":"C"}`), func(p Progress) { seen = append(seen, p.Status) })
	var failed *streamError
	if !errors.As(err, &failed) || failed.text != "broken" || strings.Join(seen, "") != "AB" {
		t.Errorf("got %v after %q", err, seen)
	}
	if err := readProgress(strings.NewReader(`{"status":`), func(Progress) {}); err == nil {
		t.Error("a cut-off message is no error")
	}
	if err := readProgress(strings.NewReader(`{"error":"old"}`), func(Progress) {}); err == nil || err.Error() != "old" {
		t.Errorf("the older form: got %v", err)
	}
}

// pipedPull is an engine whose pull sends the test's messages.
type pipedPull struct {
	*enginetest.Memory
	messages *io.PipeReader
}

func (e pipedPull) ImagePull(ctx context.Context, _ string, _ dockerimage.PullOptions) (io.ReadCloser, error) {
	context.AfterFunc(ctx, func() { e.messages.CloseWithError(ctx.Err()) })
	return e.messages, nil
}

// TestPullDeadlineWaitsForUnpacking checks that unpacking counts as progress.
func TestPullDeadlineWaitsForUnpacking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := New(Options{Engine: pipedPull{enginetest.NewMemory(), r}, PullProgressDeadline: time.Minute})
		done := make(chan error, 1)
		go func() { done <- s.pull(t.Context(), "a:b", "", func(Progress) {}) }()
		for _, status := range []string{"Extracting", "Pull complete"} {
			if _, err := fmt.Fprintf(w, `{"id":"a","status":%q}`, status); err != nil {
				t.Fatalf("%s: %v", status, err)
			}
			if status == "Extracting" {
				time.Sleep(unpackFactor*time.Minute - time.Second)
			}
		}
		began := time.Now()
		if err := <-done; !errdefs.IsAborted(err) || time.Since(began) != time.Minute {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

// TestPullIntoTheContainerdStore checks a pull whose messages end with the downloads. The engine unpacks the layers after
// that.
func TestPullIntoTheContainerdStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := New(Options{Engine: pipedPull{enginetest.NewMemory(), r}, PullProgressDeadline: time.Minute})
		done := make(chan error, 1)
		var got []string
		go func() {
			done <- s.pull(t.Context(), "a:b", "", func(p Progress) { got = append(got, p.ID+" "+p.Status) })
		}()
		for _, m := range []string{"v1 Pulling from a", "a Pulling fs layer", "b Pulling fs layer", "b Download complete", "a Download complete"} {
			id, status, _ := strings.Cut(m, " ")
			if _, err := fmt.Fprintf(w, `{"id":%q,"status":%q}`, id, status); err != nil {
				t.Fatalf("%s: %v", m, err)
			}
		}
		time.Sleep(unpackFactor*time.Minute - time.Second)
		w.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a Pull complete", "b Pull complete"}, got[5:]); diff != "" {
			t.Errorf("messages after the engine's (-want +got):\n%s", diff)
		}
	})
}

// TestPullThatHangsAfterItsDownloads checks that a pull ends although the engine never ends it.
func TestPullThatHangsAfterItsDownloads(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"Extracting", downloaded} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			s := New(Options{Engine: pipedPull{enginetest.NewMemory(), r}, PullProgressDeadline: time.Minute})
			go fmt.Fprintf(w, `{"id":"a","status":%q}`, status)
			began := time.Now()
			err := s.pull(t.Context(), "a:b", "", func(Progress) {})
			if took := time.Since(began); !errdefs.IsAborted(err) || !strings.Contains(err.Error(), "no progress for 10m0s") || took != 10*time.Minute {
				t.Errorf("%s: got %v after %s", status, err, took)
			}
		})
	}
}

func TestPinnedAndInUse(t *testing.T) {
	t.Parallel()
	e := enginetest.NewMemory()
	pause, app := e.AddImage("pause.example/p:1"), e.AddImage("app.example/a:1")
	s := New(Options{Engine: e, PauseImage: "pause.example/p:1"})
	list, err := s.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil || len(list.GetImages()) != 2 {
		t.Fatalf("got %v, %v", list, err)
	}
	for _, i := range list.GetImages() {
		if i.GetPinned() != (i.GetId() == pause) {
			t.Errorf("%s: pinned is %v", i.GetRepoTags(), i.GetPinned())
		}
	}
	if _, err := e.ContainerCreate(t.Context(), &container.Config{Image: "app.example/a:1"}, &container.HostConfig{}, nil, nil, "user"); err != nil {
		t.Fatal(err)
	}
	remove := func() error {
		_, err := s.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: app}})
		return err
	}
	if err := remove(); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "user") {
		t.Errorf("an image in use: got %v", err)
	}
	if err := e.ContainerRemove(t.Context(), "user", container.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := remove(); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
}

func TestPullInMemory(t *testing.T) {
	t.Parallel()
	e := enginetest.NewMemory()
	s := New(Options{Engine: e})
	pull := func(spec *runtimeapi.ImageSpec) error {
		_, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec})
		return err
	}
	for _, known := range []string{"other", "docker"} {
		if err := pull(&runtimeapi.ImageSpec{Image: "here.example/a:1", RuntimeHandler: known}); err != nil {
			t.Errorf("the runtime %s: %v", known, err)
		}
	}
	if err := pull(&runtimeapi.ImageSpec{Image: "here.example/a:1", RuntimeHandler: "none"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an unknown runtime: got %v", err)
	}
	r, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "here.example/a:1", Annotations: map[string]string{"a": "b"}}})
	if err != nil || r.GetImage().GetSpec().GetAnnotations()["a"] != "b" {
		t.Errorf("annotations: got %v, %v", r, err)
	}
	if err := pull(&runtimeapi.ImageSpec{Image: "missing.example/a:1"}); !errdefs.IsNotFound(err) {
		t.Errorf("a missing image: got %v", err)
	}
}

// TestUsageOfARemoteEngine checks engines with and without shared sizes. Both report no layers.
func TestUsageOfARemoteEngine(t *testing.T) {
	t.Parallel()
	for shared, want := range map[int64]Usage{
		3:  {Own: true, Sizes: []int64{7}, Images: []ImageUsage{{ID: "a", Layers: []int32{0}}}},
		-1: {Merged: true, Sizes: []int64{10}, Images: []ImageUsage{{ID: "a", Layers: []int32{0}}}},
	} {
		got := mergedLayers([]dockerimage.Summary{{ID: "a", Size: 10, SharedSize: shared}})
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%d shared (-want +got):\n%s", shared, diff)
		}
	}
}

// TestNamesOfBuiltInImages checks that no image is pulled or loaded under a built-in name.
func TestNamesOfBuiltInImages(t *testing.T) {
	t.Parallel()
	e := enginetest.NewMemory()
	s := New(Options{Engine: e})
	const own, other = "crishim.local/other:1", "app.example/a:1"
	_, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: own}})
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "built in") {
		t.Errorf("pull: got %v", err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, text := range map[string]string{"c.json": "{}", "manifest.json": `[{"Config":"c.json","RepoTags":["` + other + `","` + own + `"]}]`} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context(), &archive); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), own) || strings.Contains(err.Error(), other) {
		t.Errorf("load: got %v", err)
	}
	if _, err := e.ImageInspect(t.Context(), own); !errdefs.IsNotFound(err) {
		t.Errorf("the name is still there: %v", err)
	}
	if _, err := e.ImageInspect(t.Context(), other); err != nil {
		t.Errorf("the other name: %v", err)
	}
}

// TestListWhileAnImageIsRemoved checks lists during a removal, which fail as a whole in the containerd image store.
func TestListWhileAnImageIsRemoved(t *testing.T) {
	t.Parallel()
	m := enginetest.NewMemory()
	m.AddImage("test.example/app:v1")
	s := New(Options{Engine: m})
	for name, list := range map[string]func() error{
		"ListImages": func() error {
			r, err := s.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
			if err == nil && len(r.GetImages()) != 1 {
				t.Errorf("got %v", r)
			}
			return err
		},
		"ImageFsInfo": func() error {
			_, err := s.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
			return err
		},
		"Usage": func() error {
			_, err := s.Usage(t.Context(), false)
			return err
		},
	} {
		failures := 1
		m.Fail("ImageList", func(context.Context) error {
			if failures--; failures < 0 {
				return nil
			}
			return fmt.Errorf("failed to get rootfs of image test.example/gone:v1: content digest %s: %w", digest, errdefs.ErrNotFound)
		})
		if err := list(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.Fail("ImageList", func(context.Context) error { return errdefs.ErrUnavailable })
	if _, err := s.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v, want the engine's error", err)
	}
}
