// Package containerd moves images in and out of containerd and reports what they take of its disk, by its own services
// on the socket that has CRI. They are those of the namespace in which containerd's CRI plugin keeps its images, so
// that a kubelet sees what is loaded at once.
package containerd

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/imagefile"
)

// Store is the images, content and snapshots of a containerd.
type Store struct {
	content   content.ContentClient
	images    images.ImagesClient
	leases    leases.LeasesClient
	snapshots snapshots.SnapshotsClient
}

// namespace is that of CRI.
const namespace = "k8s.io"

// Open returns the store behind a connection, and false where that is no containerd's.
func Open(ctx context.Context, conn grpc.ClientConnInterface) (*Store, bool) {
	s := &Store{content.NewContentClient(conn), images.NewImagesClient(conn), leases.NewLeasesClient(conn), snapshots.NewSnapshotsClient(conn)}
	_, err := s.content.Info(in(ctx), &content.InfoRequest{Digest: digest.FromString("").String()})
	return s, status.Code(err) != codes.Unimplemented
}

func in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// Save copies images, by name or id, into a sink: the manifests that want takes, of which one is enough for some sinks.
func (s *Store) Save(ctx context.Context, refs []string, want func(*ocispec.Platform) bool, one bool, sink imagefile.Sink) ([]imagefile.Image, error) {
	ctx = in(ctx)
	documents := imagefile.Documents{}
	var list []imagefile.Image
	for _, ref := range refs {
		image, err := s.find(ctx, ref, want, documents)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", ref, err)
		}
		if one {
			image = image.One()
		}
		list = imagefile.Add(list, image)
	}
	for _, image := range list {
		for _, m := range image.Manifests {
			for i, layer := range m.Layers {
				if err := s.copyLayer(ctx, layer, m.DiffIDs[i], sink); err != nil {
					return nil, fmt.Errorf("layer %s: %w", layer.Digest, err)
				}
			}
		}
	}
	return list, sink.Finish(list, documents)
}

// find reads the documents of an image.
func (s *Store) find(ctx context.Context, ref string, want func(*ocispec.Platform) bool, documents imagefile.Documents) (imagefile.Image, error) {
	answer, err := s.images.Get(ctx, &images.GetImageRequest{Name: ref})
	if err != nil {
		return imagefile.Image{}, err
	}
	t := answer.GetImage().GetTarget()
	target := ocispec.Descriptor{MediaType: t.GetMediaType(), Digest: digest.Digest(t.GetDigest()), Size: t.GetSize()}
	manifests, err := imagefile.Complete(target, want, func(d ocispec.Descriptor) ([]byte, error) {
		if there, err := s.has(ctx, d); err != nil || !there {
			return nil, err
		}
		text, err := imagefile.ReadDocument(d, s.open(ctx, d.Digest))
		if err == nil {
			documents[d.Digest] = text
		}
		return text, err
	}, func(d ocispec.Descriptor) (bool, error) { return s.has(ctx, d) })
	image := imagefile.Image{Target: target, Manifests: manifests}
	if name, err := imagefile.Name(ref); err == nil && name == ref {
		image.Names = []string{name}
	}
	return image, err
}

func (s *Store) has(ctx context.Context, d ocispec.Descriptor) (bool, error) {
	_, err := s.content.Info(ctx, &content.InfoRequest{Digest: d.Digest.String()})
	if status.Code(err) == codes.NotFound {
		return false, nil
	}
	return err == nil, err
}

func (s *Store) copyLayer(ctx context.Context, layer ocispec.Descriptor, diffID digest.Digest, sink imagefile.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a stream that the sink does not read to its end
	c := imagefile.NewContent(layer, s.open(ctx, layer.Digest))
	c.DiffID = diffID
	return sink.Layer(c)
}

// open returns a reader of content that asks for it when it is first read.
func (s *Store) open(ctx context.Context, d digest.Digest) io.Reader {
	return &blob{open: func() (content.Content_ReadClient, error) {
		return s.content.Read(ctx, &content.ReadContentRequest{Digest: d.String()})
	}}
}

type blob struct {
	open   func() (content.Content_ReadClient, error)
	stream content.Content_ReadClient
	rest   []byte
}

func (b *blob) Read(p []byte) (n int, err error) {
	if b.stream == nil {
		if b.stream, err = b.open(); err != nil {
			return 0, err
		}
	}
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
