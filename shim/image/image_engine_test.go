package image_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/image"
)

func spec(ref string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: ref} }

func newService(t *testing.T) (*image.Service, *docker.Client) {
	t.Helper()
	engine := enginetest.Require(t)
	return image.New(image.Options{Engine: engine, PullProgressDeadline: time.Minute}), engine
}

func forget(t *testing.T, engine *docker.Client, id string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_, err := engine.ImageRemove(ctx, id, dockerimage.RemoveOptions{Force: true})
		if err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("remove %s: %v", id, err)
		}
	})
}

func pull(t *testing.T, s *image.Service, ref string, auth *runtimeapi.AuthConfig) (string, error) {
	t.Helper()
	r, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec(ref), Auth: auth})
	return r.GetImageRef(), err
}

// TestImageHasOneID checks an image's id in all RPCs and for all kinds of references.
func TestImageHasOneID(t *testing.T) {
	s, engine := newService(t)
	reg := newRegistry(t)
	ref, digest := reg.push(t, "one/id", "v1")
	id, err := pull(t, s, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	forget(t, engine, id)
	repository := strings.TrimSuffix(ref, ":v1")
	second := repository + ":v2"
	if err := engine.ImageTag(t.Context(), id, second); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{
		ref, second, id, strings.TrimPrefix(id, "sha256:")[:12], repository + "@" + digest, ref + "@" + digest,
	} {
		status, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec(by)})
		if err != nil {
			t.Fatalf("status of %s: %v", by, err)
		}
		i := status.GetImage()
		if i.GetId() != id || i.GetSize() == 0 || i.GetUid().GetValue() != 1234 || i.GetUsername() != "" {
			t.Errorf("status of %s: got %v, want id %s, uid 1234 and a size", by, i, id)
		}
		if diff := cmp.Diff([]string{ref, second}, i.GetRepoTags()); diff != "" {
			t.Errorf("tags by %s (-want +got):\n%s", by, diff)
		}
		if diff := cmp.Diff([]string{repository + "@" + digest}, i.GetRepoDigests()); diff != "" {
			t.Errorf("digests by %s (-want +got):\n%s", by, diff)
		}
		list, err := s.ListImages(t.Context(), &runtimeapi.ListImagesRequest{Filter: &runtimeapi.ImageFilter{Image: spec(by)}})
		if err != nil || len(list.GetImages()) != 1 || list.GetImages()[0].GetId() != id {
			t.Errorf("list of %s: got %v, %v; want the one image", by, list, err)
		}
	}
}

func TestVerboseImageStatusHasOCIConfig(t *testing.T) {
	s, engine := newService(t)
	ref, _ := newRegistry(t).push(t, "verbose/image", "v1")
	id, err := pull(t, s, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	forget(t, engine, id)
	status, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec(ref), Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		ImageSpec struct {
			Os     string
			Config struct{ User string }
		}
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil {
		t.Fatal(err)
	}
	if info.ImageSpec.Os != "linux" || info.ImageSpec.Config.User != "1234:5" {
		t.Errorf("got %+v", info)
	}
}

func TestPullByDigestHasNoTag(t *testing.T) {
	s, engine := newService(t)
	ref, digest := newRegistry(t).push(t, "by/digest", "v1")
	byDigest := strings.TrimSuffix(ref, ":v1") + "@" + digest
	id, err := pull(t, s, ref+"@"+digest, nil)
	if err != nil {
		t.Fatal(err)
	}
	forget(t, engine, id)
	status, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec(byDigest)})
	if err != nil {
		t.Fatal(err)
	}
	i := status.GetImage()
	if len(i.GetRepoTags()) != 0 || !cmp.Equal(i.GetRepoDigests(), []string{byDigest}) {
		t.Errorf("got tags %q and digests %q, want no tag and only %s", i.GetRepoTags(), i.GetRepoDigests(), byDigest)
	}
}

func TestRemoveImageByAnyReference(t *testing.T) {
	s, engine := newService(t)
	reg := newRegistry(t)
	for name, pick := range map[string]func(ref, digest, id string) string{
		"tag":      func(ref, _, _ string) string { return ref },
		"digest":   func(ref, digest, _ string) string { return strings.TrimSuffix(ref, ":v1") + "@" + digest },
		"id":       func(_, _, id string) string { return id },
		"short id": func(_, _, id string) string { return strings.TrimPrefix(id, "sha256:")[:12] },
	} {
		t.Run(name, func(t *testing.T) {
			ref, digest := reg.push(t, "remove/"+strings.ReplaceAll(name, " ", "-"), "v1")
			id, err := pull(t, s, ref, nil)
			if err != nil {
				t.Fatal(err)
			}
			forget(t, engine, id)
			if err := engine.ImageTag(t.Context(), id, ref+"-also"); err != nil {
				t.Fatal(err)
			}
			by := pick(ref, digest, id)
			var racing sync.WaitGroup
			for range 3 {
				racing.Go(func() {
					if _, err := s.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec(by)}); err != nil {
						t.Errorf("remove %s: %v", by, err)
					}
				})
			}
			racing.Wait()
			status, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec(id)})
			if err != nil || status.GetImage() != nil {
				t.Errorf("after removal by %s: got %v, %v; want no image and no error", by, status.GetImage(), err)
			}
		})
	}
}

func TestPullErrorsHaveAClass(t *testing.T) {
	s, _ := newService(t)
	reg := newRegistry(t)
	ref, _ := reg.push(t, "err/ors", "v1")

	if _, err := pull(t, s, strings.TrimSuffix(ref, "v1")+"none", nil); !errdefs.IsNotFound(err) {
		t.Errorf("unknown tag: got %v, want not found", err)
	}
	if _, err := pull(t, s, "127.0.0.1:1/no/registry:v1", nil); !errdefs.IsUnavailable(err) || !strings.HasPrefix(err.Error(), "RegistryUnavailable: ") {
		t.Errorf("no registry: got %v, want RegistryUnavailable", err)
	}
	if _, err := pull(t, s, "Not A Reference", nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("malformed: got %v, want invalid argument", err)
	}
	reg.before = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) }
	if _, err := pull(t, s, ref, nil); !errdefs.IsUnavailable(err) {
		t.Errorf("registry in trouble: got %v, want RegistryUnavailable", err)
	}
	for _, body := range []string{"slow down", `{"errors":[{"code":"TOOMANYREQUESTS","message":"the limit of pulls is reached"}]}`} {
		reg.before = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, body)
		}
		if _, err := pull(t, s, ref, nil); !errdefs.IsResourceExhausted(err) {
			t.Errorf("a limit, with %s: got %v, want resource exhausted", body, err)
		}
	}
}

func TestPullWithCredentials(t *testing.T) {
	s, engine := newService(t)
	reg := newRegistry(t)
	ref, _ := reg.push(t, "log/in", "v1")
	reg.user = "joe"

	if _, err := pull(t, s, ref, nil); !errdefs.IsUnauthorized(err) {
		t.Errorf("no credentials: got %v, want unauthenticated", err)
	}
	auth := base64.StdEncoding.EncodeToString([]byte("joe:secret"))
	id, err := pull(t, s, ref, &runtimeapi.AuthConfig{Auth: auth})
	if err != nil {
		t.Fatalf("auth field: %v", err)
	}
	forget(t, engine, id)
	if _, err := pull(t, s, ref, &runtimeapi.AuthConfig{Username: "joe", Password: "secret", ServerAddress: reg.host}); err != nil {
		t.Errorf("user and password: %v", err)
	}
}

// TestPullEndsWithTheRequest checks that a cancelled call returns at once, although the engine may continue.
func TestPullEndsWithTheRequest(t *testing.T) {
	s, _ := newService(t)
	reg := newRegistry(t)
	ref, _ := reg.push(t, "slow/pull", "v1")
	asked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	reg.before = func(_ http.ResponseWriter, req *http.Request) {
		once.Do(func() { close(asked) })
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec(ref)})
		done <- err
	}()
	await(t, asked)
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("got success, want an error")
		}
	case <-time.After(time.Minute):
		t.Fatal("the pull goes on after its request was cancelled")
	}
}

func TestPullWithoutProgressEnds(t *testing.T) {
	engine := enginetest.Require(t)
	s := image.New(image.Options{Engine: engine, PullProgressDeadline: time.Second})
	reg := newRegistry(t)
	ref, _ := reg.push(t, "silent/pull", "v1")
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	reg.before = func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}
	_, err := pull(t, s, ref, nil)
	if err == nil || !strings.Contains(err.Error(), "no progress for 1s") {
		t.Errorf("got %v, want no progress", err)
	}
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("waited for a minute")
	}
}

func TestImageStatusOfNothing(t *testing.T) {
	s, _ := newService(t)
	status, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec("127.0.0.1:1/never/there:v1")})
	if err != nil || status.GetImage() != nil {
		t.Errorf("got %v, %v; want no image and no error", status, err)
	}
	if _, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("empty reference: got %v, want invalid argument", err)
	}
	if _, err := s.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec("127.0.0.1:1/never/there:v1")}); err != nil {
		t.Errorf("remove: got %v, want success", err)
	}
}

func TestImageFsInfoCountsLayersOnce(t *testing.T) {
	s, engine := newService(t)
	before := usedBytes(t, s)
	ref, _ := newRegistry(t).push(t, "fs/info", "v1")
	id, err := pull(t, s, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	forget(t, engine, id)
	if err := engine.ImageTag(t.Context(), id, ref+"-also"); err != nil {
		t.Fatal(err)
	}
	if after := usedBytes(t, s); after <= before {
		t.Errorf("got %d after a pull, %d before; want more", after, before)
	}
}

func usedBytes(t *testing.T, s *image.Service) uint64 {
	t.Helper()
	r, err := s.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	fs := r.GetImageFilesystems()[0]
	if fs.GetTimestamp() < time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano() || fs.GetFsId().GetMountpoint() == "" {
		t.Errorf("got %v, want a time in nanoseconds and a mount point", fs)
	}
	return fs.GetUsedBytes().GetValue()
}
