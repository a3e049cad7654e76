package private

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"google.golang.org/grpc"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/docker"
	shimimage "github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/state"
)

// early is an engine that answers before it has read the archive. Like an HTTP transport, it continues to read.
type early struct {
	Engine
	reading chan struct{} // closed when it continues to read
	read    chan error    // result of reading
}

func (*early) ContainerInspect(_ context.Context, id string) (container.InspectResponse, error) {
	return container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{ID: id, Name: "/k8s_main_p_n_u_0"},
		Config:            &container.Config{Labels: map[string]string{state.LabelType: state.TypeContainer}},
	}, nil
}

func (e *early) CopyToContainer(_ context.Context, _, _ string, content io.Reader, _ container.CopyToContainerOptions) error {
	go func() {
		close(e.reading)
		_, err := io.Copy(io.Discard, content)
		e.read <- err
	}()
	<-e.reading
	return errors.New("no such directory")
}

// earlyImages is early for loading images.
type earlyImages struct {
	shimimage.Engine
	*early
}

func (e earlyImages) ImageLoad(ctx context.Context, content io.Reader, _ ...docker.ImageLoadOption) (image.LoadResponse, error) {
	return image.LoadResponse{}, e.CopyToContainer(ctx, "", "", content, container.CopyToContainerOptions{})
}

// archive is a client stream that breaks off after its first message.
type archive struct {
	grpc.ServerStream
	sent bool
}

func (*archive) Context() context.Context                     { return context.Background() }
func (*archive) SendAndClose(*api.WriteArchiveResponse) error { return nil }

func (a *archive) Recv() (*api.WriteArchiveRequest, error) {
	if a.sent {
		return nil, errors.New("the client is gone")
	}
	a.sent = true
	return &api.WriteArchiveRequest{ContainerId: "c", Path: []byte("/x")}, nil
}

// imageArchive is a stream of images that breaks off.
type imageArchive struct {
	grpc.ServerStream
	sent bool
}

func (*imageArchive) Context() context.Context                   { return context.Background() }
func (*imageArchive) SendAndClose(*api.LoadImagesResponse) error { return nil }

func (a *imageArchive) Recv() (*api.ImageArchive, error) {
	if a.sent {
		return nil, errors.New("the client is gone")
	}
	a.sent = true
	return &api.ImageArchive{Data: []byte("x")}, nil
}

// The test depends on the race detector: handler and transport run concurrently.
func TestTheEngineAnswersBeforeItHasReadTheArchive(t *testing.T) {
	t.Parallel()
	for range 20 {
		e := &early{reading: make(chan struct{}), read: make(chan error, 1)}
		err := (&Service{Engine: e}).WriteArchive(&archive{})
		if err == nil || !strings.Contains(err.Error(), "no such directory") {
			t.Errorf("got %v", err)
		}
		if err := <-e.read; err == nil {
			t.Error("the client's error is lost")
		}
		e = &early{reading: make(chan struct{}), read: make(chan error, 1)}
		err = (&Service{Images: shimimage.New(shimimage.Options{Engine: earlyImages{early: e}})}).LoadImages(&imageArchive{})
		if err == nil || !strings.Contains(err.Error(), "no such directory") {
			t.Errorf("images: got %v", err)
		}
		if err := <-e.read; err == nil {
			t.Error("images: the client's error is lost")
		}
	}
}

// TestOnlyFile checks that a single file or directory of an archive is extracted, whatever bytes its name has.
func TestOnlyFile(t *testing.T) {
	t.Parallel()
	var archive, out bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"./caf\xe9", "./caf\xe9/x", "./caf", "./caf\xe92"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := onlyFile(&out, &archive, "caf\xe9"); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(b)
	}
	if want := map[string]string{"caf\xe9": "./caf\xe9", "caf\xe9/x": "./caf\xe9/x"}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
