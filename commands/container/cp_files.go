package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/container/archive"
	"github.com/crishim/crishim/commands/container/procroot"
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
	name := cli.ContainerName(p.container)
	if own {
		return &engineFiles{p.conn, p.container.GetId(), name}, nil
	}
	found, err := p.hasTar(ctx)
	if err != nil {
		return nil, err
	}
	if found {
		return &tarFiles{p, name}, nil
	}
	root, err := p.processRoot(ctx)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("there is no tar in %s, and from outside its files cannot be reached: %w", name, err),
			"crishim debug %s brings one along; the container's files are below /proc/PID/root of its processes there", name)
	}
	return &procFiles{p, root, name}, nil
}

// hasTar asks for a tar in the container. Whatever it answers will do: not all
// know --version.
func (p *copier) hasTar(ctx context.Context) (bool, error) {
	_, err := p.conn.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.container.GetId(), Cmd: []string{"tar", "--version"}})
	var missing *cli.StatusError
	if err = cannotRun(err); errors.As(err, &missing) {
		return missing.Code != cli.ExitNotFound, nil
	}
	if status.Code(err) == codes.Unimplemented {
		return true, nil // the stream may work
	}
	return err == nil, err
}

// processRoot opens the root of the container's process, which containerd and CRI-O tell
// among their details.
func (p *copier) processRoot(ctx context.Context) (*procroot.Root, error) {
	if !strings.HasPrefix(p.conn.RuntimeEndpoint, "unix:") {
		return nil, fmt.Errorf("%s may be on another machine", p.conn.RuntimeEndpoint)
	}
	id := p.container.GetId()
	res, err := p.conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	var details struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) != nil || details.PID <= 0 {
		return nil, fmt.Errorf("%s does not tell its process", p.conn.RuntimeEndpoint)
	}
	return procroot.Open(details.PID, id)
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
	if cli.IsGone(err) {
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

// isDir follows a link, of which the engine gives the place that it leads to.
func (e *engineFiles) isDir(ctx context.Context, file string) (dir, known bool, err error) {
	mode := func(st *api.PathStat) fs.FileMode { return fs.FileMode(st.GetMode()) }
	st, err := e.conn.StatPath(ctx, e.id, path.Clean("/"+file))
	if err == nil && mode(st)&fs.ModeSymlink != 0 && st.GetLinkTarget() != "" {
		st, err = e.conn.StatPath(ctx, e.id, path.Clean("/"+st.GetLinkTarget()))
	}
	if cli.IsGone(err) {
		return false, true, nil
	}
	return mode(st).IsDir(), true, err
}

// complaintLimit is how much of a failing tar's stderr is kept.
const complaintLimit = 4096

// tarFiles are the files that a tar in the container finds.
type tarFiles struct {
	p    *copier
	name string
}

func (f *tarFiles) close() {}

func (f *tarFiles) read(ctx context.Context, dir, name string, out io.Writer) error {
	return f.tar(ctx, nil, out, "-cf", "-", "-C", dir, name)
}

func (f *tarFiles) write(ctx context.Context, dir string, content io.Reader) error {
	args := []string{"-xf", "-", "-C", dir}
	if !f.p.owner {
		args = append([]string{"-o"}, args...)
	}
	return f.tar(ctx, content, io.Discard, args...)
}

// isDir does not know of a container without a test program.
func (f *tarFiles) isDir(ctx context.Context, file string) (dir, known bool, err error) {
	res, err := f.p.conn.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: f.p.container.GetId(), Cmd: []string{"test", "-d", file},
	})
	if err != nil || res.GetExitCode() > 1 {
		return false, false, nil
	}
	return res.GetExitCode() == 0, true, nil
}

// tar runs tar in the container, and makes sentences of how it ended. in may be nil.
func (f *tarFiles) tar(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	var complaint firstBytes
	s := stream.Streams{In: in, Out: out, Err: &complaint}
	err := cannotRun(f.p.session.Dial(ctx, s, func(ctx context.Context) (string, error) {
		res, err := f.p.conn.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: f.p.container.GetId(), Cmd: append([]string{"tar"}, args...),
			Stdin: in != nil, Stdout: true, Stderr: true,
		})
		return res.GetUrl(), err
	}, stream.Exec))
	var missing *cli.StatusError
	var exit *stream.ExitError
	switch {
	case errors.As(err, &missing):
		return fmt.Errorf("tar in %s: %w", f.name, missing.Cause)
	case errors.As(err, &exit):
		line, _, _ := strings.Cut(strings.TrimSpace(string(complaint)), "\n")
		if line == "" {
			line = fmt.Sprintf("it ended with status %d", exit.Code)
		}
		return fmt.Errorf("tar in %s: %s", f.name, strings.TrimPrefix(line, "tar: "))
	}
	return err
}

// firstBytes keeps the beginning of what is written to it.
type firstBytes []byte

func (f *firstBytes) Write(p []byte) (int, error) {
	*f = append(*f, p[:min(len(p), complaintLimit-len(*f))]...)
	return len(p), nil
}

// procFiles are the files of a running container as the kernel shows them
// below /proc/PID/root: for containers that have no tar.
type procFiles struct {
	p    *copier
	root *procroot.Root
	name string
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
		err = archive.Pack(whileWanted{ctx, out, nil}, root, name, name, o)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s in %s", path.Join(dir, name), f.name)
	}
	return f.in(err)
}

// write gives the files to the user of the container, as a tar in the container
// would.
func (f *procFiles) write(ctx context.Context, dir string, content io.Reader) error {
	root, o, err := f.open(dir)
	if err != nil {
		return f.in(err)
	}
	defer root.Close()
	o.Owner = f.root.Process
	if f.p.owner {
		o.Owner = f.root.Host
	}
	return f.in(archive.Unpack(whileWanted{ctx, nil, content}, root, o))
}

func (f *procFiles) open(dir string) (*os.Root, archive.Options, error) {
	o := f.p.archiveOptions()
	o.Where = dir
	root, err := f.root.Dir(dir)
	return root, o, err
}

// in tells where it went wrong.
func (f *procFiles) in(err error) error {
	if err != nil {
		return fmt.Errorf("in %s: %w", f.name, err)
	}
	return nil
}

// whileWanted is a stream that ends with the command.
type whileWanted struct {
	ctx context.Context
	out io.Writer
	in  io.Reader
}

func (w whileWanted) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.out.Write(b)
}

func (w whileWanted) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.in.Read(b)
}
