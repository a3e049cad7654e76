package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/internal/imagefile"
	"github.com/crishim/crishim/internal/proctree"
)

const (
	// leaseTime is the expiry of a lease. The lease of a killed client keeps its content until then, or until the next
	// load. containerd's own client has the same limit.
	leaseTime   = 24 * time.Hour
	leasePrefix = "crishim-"
	// leaseOwner is the label that identifies the process that holds a lease.
	leaseOwner = "io.crishim.process"
)

// Load stores images. A lease protects their blobs from garbage collection until the images refer to them.
func (s *Store) Load(ctx context.Context, list []imagefile.Image) error {
	self, err := proctree.Find(os.Getpid())
	if err != nil {
		return err
	}
	w, err := s.newWriter(ctx, self.Mark())
	if err != nil {
		return err
	}
	return w.end(w.load(list))
}

type writer struct {
	store *Store
	ctx   context.Context //nolint:containedctx // a writer lives for one load
	lease string
	count int // number of writes
}

// newWriter removes leases that killed loads on this machine left behind, and creates a new one. Leases that it cannot
// remove will expire.
func (s *Store) newWriter(ctx context.Context, owner string) (*writer, error) {
	ctx = in(ctx)
	list, err := s.leases.List(ctx, &leases.ListRequest{})
	if err != nil {
		return nil, err
	}
	for _, l := range list.GetLeases() {
		if strings.HasPrefix(l.GetID(), leasePrefix) && proctree.HasEnded(l.GetLabels()[leaseOwner]) {
			_, _ = s.leases.Delete(ctx, &leases.DeleteRequest{ID: l.GetID(), Sync: true})
		}
	}
	id := leasePrefix + rand.Text()
	_, err = s.leases.Create(ctx, &leases.CreateRequest{ID: id, Labels: map[string]string{
		leaseOwner: owner, "containerd.io/gc.expire": time.Now().Add(leaseTime).UTC().Format(time.RFC3339),
	}})
	return &writer{store: s, ctx: metadata.AppendToOutgoingContext(ctx, "containerd-lease", id), lease: id}, err
}

// end removes the lease. After a failure it also waits for the garbage collector, which removes the content.
func (w *writer) end(err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), 30*time.Second)
	defer cancel()
	_, removed := w.store.leases.Delete(ctx, &leases.DeleteRequest{ID: w.lease, Sync: err != nil})
	return errors.Join(err, removed)
}

func (w *writer) load(list []imagefile.Image) error {
	for _, image := range list {
		for _, m := range image.Manifests {
			for _, l := range m.Layers {
				if err := w.write(l.Descriptor, l.Open, nil); err != nil {
					return fmt.Errorf("layer %s: %w", l.Digest, err)
				}
			}
		}
	}
	return w.finish(list)
}

// writeSize is the maximum size of a message.
const writeSize = 1 << 20

// write stores content. If the content exists, write only adds the labels.
func (w *writer) write(d v1.Descriptor, open func() (io.ReadCloser, error), labels map[string]string) error {
	err := w.send(d, open, labels)
	if status.Code(err) == codes.AlreadyExists { // containerd has added the existing content to the lease
		return w.update(d.Digest.String(), labels)
	}
	return err
}

func (w *writer) send(d v1.Descriptor, open func() (io.ReadCloser, error), labels map[string]string) error {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stream, err := w.store.content.Write(ctx)
	if err != nil {
		return err
	}
	defer func() { // wait until containerd has released the write
		if stream.CloseSend() == nil {
			_, _ = stream.Recv()
		}
	}()
	w.count++
	ref, digest := fmt.Sprintf("%s-%d", w.lease, w.count), d.Digest.String()
	send := func(r *content.WriteContentRequest) error {
		r.Ref = ref
		if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) { // on EOF, Recv returns the reason
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if err := send(&content.WriteContentRequest{Action: content.WriteAction_STAT, Total: d.Size, Expected: digest}); err != nil {
		return err
	}
	from, err := open()
	if err != nil {
		return err
	}
	defer from.Close()
	buf := make([]byte, writeSize)
	for offset := int64(0); offset < d.Size; {
		piece := buf[:min(writeSize, d.Size-offset)]
		if _, err := io.ReadFull(from, piece); err != nil {
			return err
		}
		if err := send(&content.WriteContentRequest{Action: content.WriteAction_WRITE, Offset: offset, Data: piece}); err != nil {
			return err
		}
		offset += int64(len(piece))
	}
	return send(&content.WriteContentRequest{Action: content.WriteAction_COMMIT, Total: d.Size, Offset: d.Size, Expected: digest, Labels: labels})
}
