package loopback_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/loopback"
	"github.com/crishim/crishim/internal/imagefile"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
)

func load(t *testing.T, pull loopback.Pull) ([]imagefile.Image, error) {
	t.Helper()
	archive := test.ImageArchive("example.com:5000/loopback/"+strings.ToLower(t.Name())+":1", nil)
	a, err := imagefile.Open(t.Context(), bytes.NewReader(archive), imagefile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	return loopback.Load(t.Context(), a.Images, pull)
}

// TestLoad pulls with a verifying client and checks that the port is closed afterwards.
func TestLoad(t *testing.T) {
	t.Parallel()
	address, id := "", ""
	images, err := load(t, func(ctx context.Context, text, password string) error {
		ref, err := name.ParseReference(text)
		if err != nil {
			return err
		}
		address = ref.Context().RegistryStr()
		if _, err := remote.Image(ref, remote.WithContext(ctx)); err == nil {
			t.Error("it wants no password")
		}
		image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuth(&authn.Basic{Username: loopback.User, Password: password}))
		if err != nil {
			return err
		}
		config, err := image.ConfigName()
		id = config.String()
		if err != nil {
			return err
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Errorf("%d layers, %v", len(layers), err)
		}
		for _, layer := range layers {
			content, err := layer.Compressed()
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, content); err != nil { // verifies the digest
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 1 || images[0].ID() != id || len(images[0].Names) != 1 || images[0].Names[0] != address+"/loopback/testload:1" {
		t.Errorf("image %s: %+v", id, images)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Errorf("%s is still listened on", address)
	}
}

func TestLoadServesNothingElse(t *testing.T) {
	t.Parallel()
	_, err := load(t, func(ctx context.Context, text, password string) error {
		host, _, _ := strings.Cut(text, "/")
		for request, want := range map[string]int{
			"GET /v2/": 200, "POST /v2/app/blobs/uploads/": 405, "GET /v2/app/manifests/none": 404, "GET /v2/app/blobs/sha256:00": 400, "PUT /v2/app/manifests/1": 405, "GET /etc/passwd": 404,
		} {
			method, path, _ := strings.Cut(request, " ")
			r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, nil)
			if err != nil {
				return err
			}
			r.SetBasicAuth(loopback.User, password)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			if err := answer.Body.Close(); err != nil || answer.StatusCode != want {
				t.Errorf("%s: got %d, want %d; %v", request, answer.StatusCode, want, err)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

var errTest = errors.New("the runtime wants TLS")

func TestLoadFails(t *testing.T) {
	t.Parallel()
	address := ""
	_, err := load(t, func(_ context.Context, ref, _ string) error {
		address, _, _ = strings.Cut(ref, "/")
		return errTest
	})
	if !errors.Is(err, errTest) {
		t.Errorf("got %v, want %v", err, errTest)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Errorf("%s is still listened on", address)
	}
}

// TestLoadOnEngine loads into a runtime through CRI only.
func TestLoadOnEngine(t *testing.T) {
	t.Parallel()
	endpoint := enginetest.Containerd(t)
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cri := runtimeapi.NewImageServiceClient(conn)
	images, err := load(t, func(ctx context.Context, ref, password string) error {
		_, err := cri.PullImage(ctx, &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: ref}, Auth: &runtimeapi.AuthConfig{Username: loopback.User, Password: password},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := &runtimeapi.ImageSpec{Image: images[0].Names[0]}
	res, err := cri.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil || res.GetImage().GetId() != images[0].ID() {
		t.Errorf("got %v, %v; want %s", res, err, images[0].ID())
	}
	if _, err := cri.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec}); err != nil {
		t.Error(err)
	}
}
