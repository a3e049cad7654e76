package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
)

// containerFiles are the files of a container, for which each kind of runtime
// has its way.
type containerFiles interface {
	// isDir asks whether a path is a directory or a link to one.
	isDir(ctx context.Context, file string) (dir, known bool, err error)
	// read writes what is called name in dir as a tar stream to out.
	read(ctx context.Context, dir, name string, out io.Writer) error
	// write unpacks a tar stream in a directory.
	write(ctx context.Context, dir string, content io.Reader) error
	close()
}

// openFiles finds the way to the files of a container: our own shim's service,
// a tar in the container, or the kernel where the container has no tar.
func (p *copier) openFiles(ctx context.Context, own bool) (containerFiles, error) {
	if own {
		return &engineFiles{p.conn, p.container.GetId(), containerName(p.container)}, nil
	}
	found, err := p.hasTar(ctx)
	if err != nil {
		return nil, err
	}
	if found {
		return &tarFiles{p}, nil
	}
	return p.openProc(ctx)
}

// engineFiles are the files that the engine of our own shim hands out, of
// stopped containers too.
type engineFiles struct {
	conn *client.Conn
	id   string
	name string // of the container, for messages
}

// absent puts the engine's many words for a path that is not there into few.
func (e *engineFiles) absent(file string, err error) error {
	if isGone(err) {
		return fmt.Errorf("there is no %s in %s", file, e.name)
	}
	return err
}

func (e *engineFiles) close() {}

func (e *engineFiles) read(ctx context.Context, dir, name string, out io.Writer) error {
	from := path.Join(dir, name)
	if name == "." {
		from = strings.TrimSuffix(dir, "/") + "/." // for entries that are called ./x
	}
	content, _, err := e.conn.ReadArchive(ctx, e.id, from)
	if err != nil {
		return e.absent(path.Join(dir, name), err)
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, content.Close())
}

func (e *engineFiles) write(ctx context.Context, dir string, content io.Reader) error {
	// The owners are those of the archive, which has them where they are
	// wanted. To copy them is the engine's word for its looking up the
	// container's user, and it does so among the host's.
	return e.absent(dir, e.conn.WriteArchive(ctx, e.id, path.Clean("/"+dir), false, content))
}

func (e *engineFiles) isDir(ctx context.Context, file string) (dir, known bool, err error) {
	st, err := e.stat(ctx, file)
	if status.Code(err) == codes.NotFound {
		return false, true, nil
	}
	return st.mode().IsDir(), true, err
}

// stat follows a link, of which the engine gives the place that it leads to.
func (e *engineFiles) stat(ctx context.Context, file string) (remoteStat, error) {
	st, err := e.conn.StatPath(ctx, e.id, path.Clean("/"+file))
	if err == nil && (remoteStat{st}).mode()&fs.ModeSymlink != 0 && st.GetLinkTarget() != "" {
		st, err = e.conn.StatPath(ctx, e.id, path.Clean("/"+st.GetLinkTarget()))
	}
	return remoteStat{st}, err
}

// remoteStat is what is known of a file in a container.
type remoteStat struct{ *api.PathStat }

func (s remoteStat) mode() fs.FileMode { return fs.FileMode(s.GetMode()) }

// hasTar asks for a tar in the container. Whatever it answers will do: not all
// know --version.
func (p *copier) hasTar(ctx context.Context) (bool, error) {
	_, err := p.conn.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.container.GetId(), Cmd: []string{"tar", "--version"}})
	var missing *statusError
	if err = cannotRun(err); errors.As(err, &missing) {
		return missing.code != exitNotFound, nil
	}
	if status.Code(err) == codes.Unimplemented {
		return true, nil // the stream may work
	}
	return err == nil, err
}
