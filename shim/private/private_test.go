package private

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/shim/docker"
	shimimage "github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/state"
)

// early is an engine that answers before it has read the archive: the HTTP transport reads on.
type early struct {
	Engine
	reading chan struct{} // closed when the rest is being read
	read    chan error    // how reading ended
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

// earlyImages is the same engine, asked to load images.
type earlyImages struct {
	shimimage.Engine
	*early
}

func (e earlyImages) ImageLoad(ctx context.Context, content io.Reader, _ ...docker.ImageLoadOption) (image.LoadResponse, error) {
	return image.LoadResponse{}, e.CopyToContainer(ctx, "", "", content, container.CopyToContainerOptions{})
}

// archive is a client's stream that breaks off after its first message.
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
	return &api.WriteArchiveRequest{ContainerId: "c", Path: "/x"}, nil
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

// The race detector sees what the handler and the transport share.
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

// busyEngine answers the disk usage of another client first, as engines before 23 do.
type busyEngine struct {
	Engine
	calls int
}

func (e *busyEngine) Info(context.Context) (system.Info, error) {
	return system.Info{DockerRootDir: "/nonexistent"}, nil
}

func (e *busyEngine) DiskUsage(context.Context, types.DiskUsageOptions) (types.DiskUsage, error) {
	if e.calls++; e.calls < 3 {
		return types.DiskUsage{}, errors.New("Error response from daemon: a disk usage operation is already running")
	}
	return types.DiskUsage{
		Containers: []*container.Summary{{ID: "plain", Names: []string{"/plain"}, SizeRw: 7, State: container.StateExited}},
		Volumes:    []*volume.Volume{{Name: "data"}, {Name: "old", UsageData: &volume.UsageData{Size: 5}}},
		BuildCache: []*build.CacheRecord{{ID: "shared", Shared: true, Size: 3}, {ID: "own", Size: 2}},
	}, nil
}

func TestDiskUsageWaitsForAnotherClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := (&Service{Engine: &busyEngine{}}).DiskUsage(t.Context(), &api.DiskUsageRequest{})
		want := &api.DiskUsageResponse{
			Containers: []*api.DiskObject{{Id: "plain", Name: "plain", Size: 7, LogSize: -1}},
			Volumes:    []*api.DiskObject{{Id: "data", Name: "data", Size: -1, Used: true}, {Id: "old", Name: "old", Size: 5}},
			BuildCache: []*api.DiskObject{{Id: "own", Size: 2}},
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		ctx, cancel := context.WithTimeout(t.Context(), busyPause/2)
		defer cancel()
		if _, err := (&Service{Engine: &busyEngine{}}).DiskUsage(ctx, &api.DiskUsageRequest{}); err == nil {
			t.Error("no error at the end of the call's time")
		}
	})
}
