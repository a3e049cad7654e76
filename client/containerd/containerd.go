// Package containerd loads and saves images of containerd and reports their disk usage. It uses containerd's own
// services on the CRI socket and the namespace of the CRI plugin, so a kubelet sees a loaded image at once.
package containerd

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/internal/imagefile"
	"github.com/crishim/crishim/internal/imageref"
)

// Store reads and writes the images, content and snapshots of a containerd.
type Store struct {
	content   content.ContentClient
	images    images.ImagesClient
	leases    leases.LeasesClient
	snapshots snapshots.SnapshotsClient
	plugins   introspection.IntrospectionClient
}

const noContent = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// namespace is the namespace of CRI.
const namespace = "k8s.io"

// Open returns the store behind a connection, or false if the runtime is not containerd.
func Open(ctx context.Context, conn grpc.ClientConnInterface) (*Store, bool) {
	s := &Store{content.NewContentClient(conn), images.NewImagesClient(conn), leases.NewLeasesClient(conn), snapshots.NewSnapshotsClient(conn), introspection.NewIntrospectionClient(conn)}
	_, err := s.content.Info(in(ctx), &content.InfoRequest{Digest: noContent})
	return s, status.Code(err) != codes.Unimplemented
}

func in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// Images returns images by name or id. It leaves out manifests for other platforms and manifests whose content is
// missing. A nil platform means all platforms.
func (s *Store) Images(ctx context.Context, refs []string, platform *v1.Platform, watch imagefile.Watch) ([]imagefile.Image, error) {
	ctx = in(ctx)
	finder := imagefile.NewFinder(reader{s, ctx}, platform, watch)
	var list []imagefile.Image
	for _, ref := range refs {
		image, err := s.find(ctx, ref, finder)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", ref, err)
		}
		list = imagefile.Add(list, image)
	}
	return list, nil
}

func (s *Store) find(ctx context.Context, ref string, finder *imagefile.Finder) (imagefile.Image, error) {
	answer, err := s.images.Get(ctx, &images.GetImageRequest{Name: ref})
	if err != nil {
		return imagefile.Image{}, err
	}
	t := answer.GetImage().GetTarget()
	digest, err := v1.NewHash(t.GetDigest())
	if err != nil {
		return imagefile.Image{}, err
	}
	image, err := finder.Find(v1.Descriptor{MediaType: types.MediaType(t.GetMediaType()), Digest: digest, Size: t.GetSize()})
	if name, err := imageref.Full(ref); err == nil && name == ref {
		image.Names = []string{name}
	}
	return image, err
}

type reader struct {
	store *Store
	ctx   context.Context //nolint:containedctx // imagefile.Store has no context parameter
}

func (r reader) Size(digest v1.Hash) (int64, error) {
	answer, err := r.store.content.Info(r.ctx, &content.InfoRequest{Digest: digest.String()})
	if status.Code(err) == codes.NotFound {
		err = imagefile.ErrMissing
	}
	return answer.GetInfo().GetSize(), err
}

func (r reader) Open(digest v1.Hash) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	stream, err := r.store.content.Read(ctx, &content.ReadContentRequest{Digest: digest.String()})
	return &blob{stream: stream, cancel: cancel}, err
}

type blob struct {
	stream content.Content_ReadClient
	cancel context.CancelFunc
	rest   []byte
}

func (b *blob) Read(p []byte) (n int, err error) {
	for len(b.rest) == 0 {
		m, err := b.stream.Recv()
		if err != nil {
			return 0, err
		}
		b.rest = m.GetData()
	}
	n = copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *blob) Close() error {
	b.cancel()
	return nil
}

// alsoRuns lists other architectures whose images containerd accepts.
var alsoRuns = map[string]string{"amd64": "386", "arm64": "arm"}

// Platforms returns the platforms whose images CRI lists, the runtime's own first, or nil if unknown.
func (s *Store) Platforms(ctx context.Context) (platforms []v1.Platform) {
	answer, err := s.plugins.Plugins(in(ctx), &introspection.PluginsRequest{Filters: []string{"id==cri", "id==images"}})
	if err != nil {
		return nil
	}
	for _, plugin := range answer.GetPlugins() {
		for _, p := range plugin.GetPlatforms() {
			platforms = append(platforms, v1.Platform{OS: p.GetOS(), Architecture: p.GetArchitecture()})
			if other := alsoRuns[p.GetArchitecture()]; other != "" {
				platforms = append(platforms, v1.Platform{OS: p.GetOS(), Architecture: other})
			}
		}
	}
	return slices.CompactFunc(platforms, v1.Platform.Equals)
}
