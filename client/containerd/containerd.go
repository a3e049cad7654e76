// Package containerd moves images in and out of containerd and reports what they take of its disk, by its own services
// on the socket that has CRI. They are those of the namespace in which containerd's CRI plugin keeps its images, so
// that a kubelet sees what is loaded at once.
package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

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

// Save copies images, by name or id, into a sink.
func (s *Store) Save(ctx context.Context, refs []string, want func(*ocispec.Platform) bool, sink imagefile.Sink) ([]imagefile.Image, error) {
	ctx = in(ctx)
	documents := imagefile.Documents{}
	var list []imagefile.Image
	for _, ref := range refs {
		image, err := s.find(ctx, ref, want, documents)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", ref, err)
		}
		list = append(list, image)
	}
	for _, image := range list {
		for _, m := range image.Manifests {
			for _, layer := range m.Layers {
				if err := s.copyLayer(ctx, layer, sink); err != nil {
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

func (s *Store) copyLayer(ctx context.Context, layer ocispec.Descriptor, sink imagefile.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a stream that the sink does not read to its end
	return sink.Layer(imagefile.NewContent(layer, s.open(ctx, layer.Digest)))
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

// Load calls copy with a sink that stores images. What is stored is kept by a lease until the images hold it.
func (s *Store) Load(ctx context.Context, copy func(imagefile.Sink) ([]imagefile.Image, error)) ([]imagefile.Image, error) {
	w := &writer{store: s, ctx: in(ctx), id: leasePrefix + rand.Text()}
	s.sweep(w.ctx)
	if err := w.renew(); err != nil {
		return nil, err
	}
	list, err := copy(w)
	if err != nil {
		return nil, errors.Join(err, w.remove(w.lease, true)) // with what it held
	}
	return list, w.remove(w.lease, false)
}

// writer is a Sink.
type writer struct {
	store *Store
	ctx   context.Context //nolint:containedctx // a load is one call
	id    string          // of the present lease, and of what is being written
	count int             // of leases and writes
	lease string
	since time.Time
	held  []string // digests
}

// Layer implements imagefile.Sink.
func (w *writer) Layer(c *imagefile.Content) error {
	if err := w.renew(); err != nil {
		return err
	}
	return w.write(c, nil)
}

// writeSize is how much goes into one message.
const writeSize = 1 << 20

// write stores content that is not there, and sets its labels.
func (w *writer) write(c *imagefile.Content, labels map[string]string) (err error) {
	if c.Digest != "" {
		if there, err := w.store.has(w.ctx, c.Descriptor); err != nil {
			return err
		} else if there {
			return w.keep(c.Digest.String(), labels)
		}
	}
	w.count++
	ref := fmt.Sprintf("%s-%d", w.id, w.count)
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(w.ctx, "containerd-lease", w.lease))
	defer cancel()
	s, err := w.store.content.Write(ctx)
	if err != nil {
		return err
	}
	call := func(r *content.WriteContentRequest) error {
		if err := s.Send(r); err != nil && !errors.Is(err, io.EOF) { // at EOF the answer has the reason
			return err
		}
		_, err := s.Recv()
		return err
	}
	defer func() {
		if err != nil && status.Code(err) != codes.AlreadyExists {
			cancel()
			abort, done := context.WithTimeout(context.WithoutCancel(w.ctx), 10*time.Second)
			defer done()
			_, _ = w.store.content.Abort(abort, &content.AbortRequest{Ref: ref}) // else it goes with the lease
		}
	}()
	if err := call(&content.WriteContentRequest{Action: content.WriteAction_STAT, Ref: ref, Total: c.Size}); err != nil {
		return err
	}
	buf := make([]byte, writeSize)
	for offset := int64(0); ; {
		n, readErr := io.ReadFull(c, buf)
		if n > 0 {
			if err := call(&content.WriteContentRequest{Action: content.WriteAction_WRITE, Ref: ref, Offset: offset, Data: buf[:n]}); err != nil {
				return err
			}
			offset += int64(n)
		}
		if readErr == nil {
			continue
		}
		if !errors.Is(readErr, io.EOF) && offset != c.Size {
			return readErr
		}
		break
	}
	d := c.Digest.String()
	err = call(&content.WriteContentRequest{Action: content.WriteAction_COMMIT, Ref: ref, Total: c.Size, Offset: c.Size, Expected: d, Labels: labels})
	if status.Code(err) == codes.AlreadyExists { // another load has created it
		return w.keep(d, labels)
	}
	if err == nil {
		w.held = append(w.held, d)
	}
	return err
}

// keep holds content that is there already, and makes sure of its labels.
func (w *writer) keep(d string, labels map[string]string) error {
	if err := w.hold(d); err != nil || len(labels) == 0 {
		return err
	}
	return w.update(d, labels)
}
