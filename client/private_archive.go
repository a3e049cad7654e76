package client

import (
	"context"
	"errors"
	"io"

	"github.com/crishim/crishim/api"
)

// ReadArchive gives a path of a container as a tar archive, and what the path
// is. The container need not run, and needs no programs. The caller closes it.
func (c *Conn) ReadArchive(ctx context.Context, containerID, path string) (io.ReadCloser, *api.PathStat, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.private().ReadArchive(ctx, &api.ReadArchiveRequest{ContainerId: containerID, Path: path})
	if err != nil {
		cancel()
		return nil, nil, c.privateError(err)
	}
	first, err := s.Recv()
	if err != nil {
		cancel()
		return nil, nil, c.privateError(err)
	}
	return &archive{recv: s.Recv, rest: first.GetData(), cancel: cancel}, first.GetStat(), nil
}

// archive is the content of the messages of a ReadArchive call.
type archive struct {
	recv   func() (*api.ReadArchiveResponse, error)
	rest   []byte
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (a *archive) Read(b []byte) (int, error) {
	for len(a.rest) == 0 {
		m, err := a.recv()
		if err != nil {
			return 0, err
		}
		a.rest = m.GetData()
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Close ends the call.
func (a *archive) Close() error {
	a.cancel()
	return nil
}

// writeChunk is how much of an archive goes into one message.
const writeChunk = 64 << 10

// WriteArchive unpacks a tar archive in a directory of a container.
func (c *Conn) WriteArchive(ctx context.Context, containerID, dir string, copyOwner bool, content io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.private().WriteArchive(ctx)
	if err != nil {
		return c.privateError(err)
	}
	message := &api.WriteArchiveRequest{ContainerId: containerID, Path: dir, CopyOwner: copyOwner}
	buf := make([]byte, writeChunk)
	for {
		n, readErr := io.ReadFull(content, buf)
		message.Data = buf[:n]
		if n > 0 || message.ContainerId != "" {
			if err := s.Send(message); err != nil {
				break // the answer tells why
			}
		}
		message = &api.WriteArchiveRequest{}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		if readErr != nil {
			return readErr
		}
	}
	_, err = s.CloseAndRecv()
	return c.privateError(err)
}

// StatPath says what a path of a container is.
func (c *Conn) StatPath(ctx context.Context, containerID, path string) (*api.PathStat, error) {
	st, err := c.private().StatPath(ctx, &api.StatPathRequest{ContainerId: containerID, Path: path})
	if err != nil {
		return nil, c.privateError(err)
	}
	return st, nil
}
