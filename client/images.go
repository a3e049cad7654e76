package client

import (
	"context"
	"errors"
	"io"

	"github.com/crishim/crishim/api"
)

// imageChunk is how much of an archive of images goes into one message.
const imageChunk = 512 << 10

// SaveImages returns images as the archive of the engine behind our own shim, which the caller closes.
func (c *Conn) SaveImages(ctx context.Context, images []string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := api.NewCrishimClient(c.image).SaveImages(ctx, &api.SaveImagesRequest{Images: images})
	if err != nil {
		cancel()
		return nil, c.privateError(err)
	}
	first, err := s.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return nil, c.privateError(err)
	}
	return &archive[*api.ImageArchive]{recv: s.Recv, rest: first.GetData(), cancel: cancel}, nil
}

// LoadImages has the engine behind our own shim load an archive. Where reading the archive fails nothing is
// loaded.
func (c *Conn) LoadImages(ctx context.Context, archive io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an archive that cannot be read to its end
	s, err := api.NewCrishimClient(c.image).LoadImages(ctx)
	if err != nil {
		return c.privateError(err)
	}
	buf := make([]byte, imageChunk)
	for {
		n, readErr := archive.Read(buf)
		if n > 0 {
			if err := s.Send(&api.ImageArchive{Data: buf[:n]}); err != nil {
				break // the answer has the reason
			}
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return readErr
		}
	}
	_, err = s.CloseAndRecv()
	return c.privateError(err)
}
