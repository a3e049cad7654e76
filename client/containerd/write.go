package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/imagefile"
)

// Load stores images. A lease keeps their blobs until the images refer to them.
func (s *Store) Load(ctx context.Context, list []imagefile.Image) error {
	w, err := s.newWriter(ctx)
	if err != nil {
		return err
	}
	return w.end(w.load(list))
}

// end removes the lease, after a failure with what it held.
func (w *writer) end(err error) error { return errors.Join(err, w.remove(w.lease, err != nil)) }

func (s *Store) newWriter(ctx context.Context) (*writer, error) {
	w := &writer{store: s, ctx: in(ctx), id: leasePrefix + rand.Text(), held: map[string]bool{}}
	s.sweep(w.ctx)
	return w, w.renew()
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

// writer stores content, held by a lease.
type writer struct {
	store   *Store
	ctx     context.Context //nolint:containedctx // a load is one call
	id      string          // of the present lease, and of what is being written
	count   int             // of leases and writes
	lease   string
	since   time.Time
	held    map[string]bool // digests
	writing string          // what is being written
}

// writeSize is how much goes into one message.
const writeSize = 1 << 20

// write stores content that is not there, and sets its labels.
func (w *writer) write(d v1.Descriptor, open func() (io.ReadCloser, error), labels map[string]string) (err error) {
	if err := w.renew(); err != nil {
		return err
	}
	id := d.Digest.String()
	if err := w.hold(id); err != nil { // before it is looked for: containerd might remove it in between
		return err
	}
	if _, err := (reader{w.store, w.ctx}).Size(d.Digest); err == nil {
		return w.update(id, labels)
	} else if !errors.Is(err, imagefile.ErrMissing) {
		return err
	}
	from, err := open()
	if err != nil {
		return err
	}
	defer from.Close()
	w.count++
	w.writing = fmt.Sprintf("%s-%d", w.id, w.count)
	i := &ingest{writer: w, ref: w.writing, size: d.Size}
	defer func() {
		i.close()
		w.writing = ""
		if err != nil && status.Code(err) != codes.AlreadyExists {
			abort, done := context.WithTimeout(context.WithoutCancel(w.ctx), 10*time.Second)
			defer done()
			_, _ = w.store.content.Abort(abort, &content.AbortRequest{Ref: i.ref}) // else it goes with the lease
		}
	}()
	buf := make([]byte, writeSize)
	for offset := int64(0); ; {
		n, readErr := io.ReadFull(from, buf)
		if err := w.renew(); err != nil {
			return err
		}
		if n > 0 {
			if err := i.send(&content.WriteContentRequest{Action: content.WriteAction_WRITE, Offset: offset, Data: buf[:n]}); err != nil {
				return err
			}
			offset += int64(n)
		}
		if readErr == nil {
			continue
		}
		// ReadFull also says that the end is unexpected where the last message is not a full one.
		if atEnd := errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) && offset == d.Size; !atEnd {
			return readErr
		}
		break
	}
	err = i.send(&content.WriteContentRequest{Action: content.WriteAction_COMMIT, Total: d.Size, Offset: d.Size, Expected: id, Labels: labels})
	if status.Code(err) == codes.AlreadyExists { // another load has created it
		return w.update(id, labels)
	}
	return err
}

// ingest is content that is being written, by streams of which each has one lease.
type ingest struct {
	writer *writer
	ref    string
	size   int64
	lease  string
	stream content.Content_WriteClient
	cancel context.CancelFunc
}

// send opens a stream where there is none with the present lease.
func (i *ingest) send(r *content.WriteContentRequest) (err error) {
	if i.lease != i.writer.lease {
		i.close()
		var ctx context.Context
		ctx, i.cancel = context.WithCancel(metadata.AppendToOutgoingContext(i.writer.ctx, "containerd-lease", i.writer.lease))
		if i.stream, err = i.writer.store.content.Write(ctx); err != nil {
			return err
		}
		i.lease = i.writer.lease
		if err := i.send(&content.WriteContentRequest{Action: content.WriteAction_STAT, Total: i.size}); err != nil {
			return err
		}
	}
	r.Ref = i.ref
	if err := i.stream.Send(r); err != nil && !errors.Is(err, io.EOF) { // at EOF the answer has the reason
		return err
	}
	_, err = i.stream.Recv()
	return err
}

// close returns when containerd has released what was written, so that another stream can go on with it.
func (i *ingest) close() {
	if i.stream == nil {
		return
	}
	if i.stream.CloseSend() == nil {
		_, _ = i.stream.Recv()
	}
	i.cancel()
	i.stream = nil
}
