package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/container/archive"
	"github.com/crishim/crishim/commands/container/procroot"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/shellwords"
)

type containerFiles interface {
	// isDir reports whether a path is a directory or a symbolic link to one, if that is known.
	isDir(ctx context.Context, file string) (dir, known bool, err error)
	// read writes the file called name in dir as a tar stream to out.
	read(ctx context.Context, dir, name string, out io.Writer) error
	// write unpacks a tar stream in a directory.
	write(ctx context.Context, dir string, content io.Reader) error
	close()
}

// openFiles chooses the dockershim's private service or a tar in the container. Without a tar, or for a path that CRI cannot
// carry, it chooses /proc.
func (p *copier) openFiles(ctx context.Context, own bool) (containerFiles, error) {
	if own {
		return engineFiles{p}, nil
	}
	noTar := "there is no tar in " + p.name
	file := p.from
	if p.upload {
		file = p.to
	}
	if utf8.ValidString(file) {
		found, err := p.hasTar(ctx)
		if err != nil {
			return nil, err
		}
		if found {
			return tarFiles{p}, nil
		}
	} else {
		noTar = fmt.Sprintf("the path %s is not UTF-8, and CRI carries nothing else", cli.Quote(file))
	}
	root, err := p.processRoot(ctx)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("%s, and from outside its files cannot be reached: %w", noTar, err),
			"`crishim debug %s` has one; the container's files are below /proc/PID/root of its processes there", shellwords.Quote(p.name))
	}
	return &procFiles{p, root}, nil
}

// hasTar ignores the exit status: not every tar has --version.
func (p *copier) hasTar(ctx context.Context) (bool, error) {
	_, err := p.conn.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.id, Cmd: []string{"tar", "--version"}})
	var missing *cli.StatusError
	if err = cannotRun(err); errors.As(err, &missing) {
		return missing.Code != cli.ExitNotFound, nil
	}
	if status.Code(err) == codes.Unimplemented {
		return true, nil // Exec may work without ExecSync
	}
	return err == nil, err
}

// processRoot opens the root directory of the container's process. containerd and CRI-O report the process id in their
// verbose status.
func (p *copier) processRoot(ctx context.Context) (*procroot.Root, error) {
	if !strings.HasPrefix(p.conn.RuntimeEndpoint, "unix:") {
		return nil, fmt.Errorf("%s may be on another machine", p.conn.RuntimeEndpoint)
	}
	res, err := p.conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.id, Verbose: true})
	if err != nil {
		return nil, err
	}
	var details struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) != nil || details.PID <= 0 {
		return nil, fmt.Errorf("%s does not report its process", p.conn.RuntimeEndpoint)
	}
	return procroot.Open(details.PID, p.id)
}

// engineFiles uses the private service of crishim's dockershim, which also reaches stopped containers.
type engineFiles struct{ *copier }

func (e engineFiles) absent(file string, err error) error {
	if cli.IsGone(err) {
		return fmt.Errorf("there is no %s in %s", file, e.name)
	}
	return err
}

func (engineFiles) close() {}

func (e engineFiles) read(ctx context.Context, dir, name string, out io.Writer) error {
	from := path.Join(dir, name)
	if name == "." {
		from = strings.TrimSuffix(dir, "/") + "/." // the engine then names the entries ./x, without the directory
	}
	content, _, err := e.conn.ReadArchive(ctx, e.id, from)
	if err != nil {
		return e.absent(path.Join(dir, name), err)
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, content.Close())
}

func (e engineFiles) write(ctx context.Context, dir string, content io.Reader) error {
	return e.absent(dir, e.conn.WriteArchive(ctx, e.id, path.Clean("/"+dir), content))
}

func (e engineFiles) isDir(ctx context.Context, file string) (dir, known bool, err error) {
	mode := func(st *api.PathStat) fs.FileMode { return fs.FileMode(st.GetMode()) }
	st, err := e.conn.StatPath(ctx, e.id, path.Clean("/"+file))
	if err == nil && mode(st)&fs.ModeSymlink != 0 && len(st.GetLinkTarget()) > 0 {
		st, err = e.conn.StatPath(ctx, e.id, path.Clean("/"+string(st.GetLinkTarget())))
	}
	if cli.IsGone(err) {
		return false, true, nil
	}
	return mode(st).IsDir(), true, err
}

type tarFiles struct{ *copier }

func (tarFiles) close() {}

func (f tarFiles) read(ctx context.Context, dir, name string, out io.Writer) error {
	return f.tar(ctx, nil, out, "-cf", "-", "-C", dir, name)
}

func (f tarFiles) write(ctx context.Context, dir string, content io.Reader) error {
	args := []string{"-xf", "-", "-C", dir}
	if !f.owner {
		args = append([]string{"-o"}, args...)
	}
	return f.tar(ctx, content, io.Discard, args...)
}

// isDir runs the program test in the container.
func (f tarFiles) isDir(ctx context.Context, file string) (dir, known bool, err error) {
	res, err := f.conn.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: f.id, Cmd: []string{"test", "-d", file}})
	if err != nil || res.GetExitCode() > 1 {
		return false, false, nil
	}
	return res.GetExitCode() == 0, true, nil
}

// tar runs tar in the container. in may be nil.
func (f tarFiles) tar(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	var stderr firstBytes
	s := stream.Streams{In: in, Out: out, Err: &stderr}
	err := cannotRun(f.session.Dial(ctx, f.conn, s, func(ctx context.Context) (string, error) {
		res, err := f.conn.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: f.id, Cmd: append([]string{"tar"}, args...), Stdin: in != nil, Stdout: true, Stderr: true,
		})
		return res.GetUrl(), err
	}))
	var missing *cli.StatusError
	var exit *stream.ExitError
	switch {
	case errors.As(err, &missing):
		return fmt.Errorf("tar in %s: %w", f.name, missing.Cause)
	case errors.As(err, &exit):
		line, _, _ := strings.Cut(strings.TrimSpace(string(stderr)), "\n")
		return fmt.Errorf("tar in %s: %s", f.name, cmp.Or(strings.TrimPrefix(line, "tar: "), fmt.Sprintf("exit status %d", exit.Code)))
	}
	return err
}

// firstBytes keeps the first 4 KiB.
type firstBytes []byte

func (f *firstBytes) Write(p []byte) (int, error) {
	*f = append(*f, p[:min(len(p), 4<<10-len(*f))]...)
	return len(p), nil
}

// procFiles uses /proc/PID/root of a running container.
type procFiles struct {
	*copier
	root *procroot.Root
}

func (f *procFiles) close() { _ = f.root.Close() }

func (f *procFiles) isDir(_ context.Context, file string) (dir, known bool, err error) {
	dir, err = f.root.IsDir(file)
	return dir, err == nil, f.in(err)
}

func (f *procFiles) read(ctx context.Context, dir, name string, out io.Writer) error {
	root, o, err := f.open(dir)
	if err == nil {
		defer root.Close()
		o.Owner = f.root.Container
		name = path.Clean(name)
		err = archive.Pack(untilDone{ctx, out, nil}, root, name, name, o)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s in %s", path.Join(dir, name), f.name)
	}
	return f.in(err)
}

// write makes the container's user the owner, as a tar in the container would. With --archive it keeps the owners in the
// stream, which are ids of the container.
func (f *procFiles) write(ctx context.Context, dir string, content io.Reader) error {
	root, o, err := f.open(dir)
	if err != nil {
		return f.in(err)
	}
	defer root.Close()
	o.Owner = f.root.Process
	if f.owner {
		o.Owner = f.root.Host
	}
	return f.in(archive.Unpack(untilDone{ctx, nil, content}, root, o))
}

func (f *procFiles) open(dir string) (*os.Root, archive.Options, error) {
	o := f.archiveOptions()
	o.Where = dir
	root, err := f.root.Dir(dir)
	return root, o, err
}

func (f *procFiles) in(err error) error {
	if err != nil {
		return fmt.Errorf("in %s: %w", f.name, err)
	}
	return nil
}

// untilDone is a stream that fails once its context is done.
type untilDone struct {
	ctx context.Context
	out io.Writer
	in  io.Reader
}

func (w untilDone) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.out.Write(b)
}

func (w untilDone) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.in.Read(b)
}
