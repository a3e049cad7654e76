package commands

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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/archive"
	"github.com/crishim/crishim/commands/procroot"
)

// procFiles are the files of a running container as the kernel shows them
// below /proc/PID/root: for containers that have no tar.
type procFiles struct {
	p    *copier
	root *procroot.Root
}

func (p *copier) openProc(ctx context.Context) (containerFiles, error) {
	root, err := p.processRoot(ctx)
	if err != nil {
		name := containerName(p.container)
		return nil, withHint(fmt.Errorf("there is no tar in %s, and from outside its files cannot be reached: %w", name, err),
			"crishim debug %s brings one along; the container's files are below /proc/PID/root of its processes there", name)
	}
	return &procFiles{p, root}, nil
}

func (p *copier) processRoot(ctx context.Context) (*procroot.Root, error) {
	if !strings.HasPrefix(p.conn.RuntimeEndpoint, "unix:") {
		return nil, fmt.Errorf("%s may be on another machine", p.conn.RuntimeEndpoint)
	}
	id := p.container.GetId()
	res, err := p.conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	pid := processOf(res.GetInfo())
	if pid <= 0 {
		return nil, fmt.Errorf("%s does not tell its process", p.conn.RuntimeEndpoint)
	}
	return procroot.Open(pid, id)
}

// processOf finds the process id in the additional information about a
// container, where containerd and CRI-O have it.
func processOf(info map[string]string) int {
	var details struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal([]byte(info["info"]), &details) != nil {
		return 0
	}
	return details.PID
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
		return fmt.Errorf("there is no %s in %s", path.Join(dir, name), containerName(f.p.container))
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

// in says where it went wrong.
func (f *procFiles) in(err error) error {
	if err != nil {
		return fmt.Errorf("in %s: %w", containerName(f.p.container), err)
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
