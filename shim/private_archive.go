package shim

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/api"
)

// archiveChunk is how much of an archive goes into one message.
const archiveChunk = 64 << 10

// StatPath says what a path of a container is.
func (p *private) StatPath(ctx context.Context, r *api.StatPathRequest) (*api.PathStat, error) {
	if err := p.known(ctx, r.GetContainerId()); err != nil {
		return nil, err
	}
	st, err := p.engine.ContainerStatPath(ctx, r.GetContainerId(), r.GetPath())
	if err != nil {
		return nil, fmt.Errorf("%s in container %q: %w", r.GetPath(), r.GetContainerId(), err)
	}
	return pathStat(st), nil
}

func pathStat(st container.PathStat) *api.PathStat {
	return &api.PathStat{
		Name: st.Name, Size: st.Size, Mode: uint32(st.Mode), ModifiedUnixNano: st.Mtime.UnixNano(), LinkTarget: st.LinkTarget,
	}
}

// ReadArchive sends a path as a tar archive. The container need not run.
func (p *private) ReadArchive(r *api.ReadArchiveRequest, out api.Crishim_ReadArchiveServer) error {
	if err := p.known(out.Context(), r.GetContainerId()); err != nil {
		return err
	}
	content, st, err := p.engine.CopyFromContainer(out.Context(), r.GetContainerId(), r.GetPath())
	if err != nil {
		return fmt.Errorf("%s in container %q: %w", r.GetPath(), r.GetContainerId(), err)
	}
	defer content.Close()
	if err := out.Send(&api.ReadArchiveResponse{Stat: pathStat(st)}); err != nil {
		return err
	}
	buf := make([]byte, archiveChunk)
	for {
		n, err := content.Read(buf)
		if n > 0 {
			if err := out.Send(&api.ReadArchiveResponse{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s in container %q: %w", r.GetPath(), r.GetContainerId(), err)
		}
	}
}

// WriteArchive unpacks a tar archive in a directory of a container.
func (p *private) WriteArchive(in api.Crishim_WriteArchiveServer) error {
	first, err := in.Recv()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the request names no container: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return err
	}
	if err := p.known(in.Context(), first.GetContainerId()); err != nil {
		return err
	}
	content := &archiveReader{in: in, rest: first.GetData()}
	err = p.engine.CopyToContainer(in.Context(), first.GetContainerId(), first.GetPath(), content, container.CopyToContainerOptions{
		CopyUIDGID: first.GetCopyOwner(),
	})
	if err != nil {
		return fmt.Errorf("%s in container %q: %w", first.GetPath(), first.GetContainerId(), errors.Join(content.err, err))
	}
	return in.SendAndClose(&api.WriteArchiveResponse{})
}

// archiveReader is the content of the messages of a WriteArchive call.
type archiveReader struct {
	in   api.Crishim_WriteArchiveServer
	rest []byte
	err  error // why receiving ended, unless the client was done
}

// Read implements io.Reader.
func (a *archiveReader) Read(b []byte) (int, error) {
	for len(a.rest) == 0 {
		m, err := a.in.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				a.err = err
			}
			return 0, err
		}
		a.rest = m.GetData()
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}
