package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/imagefile"
)

// Load calls copy with a sink that stores images. What is stored is kept by a lease until the images hold it.
func (s *Store) Load(ctx context.Context, copy func(imagefile.Sink) ([]imagefile.Image, error)) ([]imagefile.Image, error) {
	w := &writer{store: s, ctx: in(ctx), id: leasePrefix + rand.Text(), held: map[string]bool{}}
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
	store   *Store
	ctx     context.Context //nolint:containedctx // a load is one call
	id      string          // of the present lease, and of what is being written
	count   int             // of leases and writes
	lease   string
	since   time.Time
	held    map[string]bool // digests
	writing string          // what is being written
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
		d := c.Digest.String()
		if err := w.hold(d); err != nil { // before it is looked for: containerd might remove it in between
			return err
		}
		there, err := w.store.has(w.ctx, c.Descriptor)
		if err != nil {
			return err
		}
		if there {
			return w.update(d, labels)
		}
	}
	w.count++
	w.writing = fmt.Sprintf("%s-%d", w.id, w.count)
	i := &ingest{writer: w, ref: w.writing, size: c.Size}
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
		n, readErr := io.ReadFull(c, buf)
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
		if atEnd := errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) && offset == c.Size; !atEnd {
			return readErr
		}
		break
	}
	d := c.Digest.String()
	err = i.send(&content.WriteContentRequest{Action: content.WriteAction_COMMIT, Total: c.Size, Offset: c.Size, Expected: d, Labels: labels})
	if err == nil {
		w.held[d] = true // by the lease of the stream
	}
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	if err := w.hold(d); err != nil { // another load has created it
		return err
	}
	return w.update(d, labels)
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
