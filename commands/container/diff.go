package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/overlay"
)

type diffOptions struct {
	container string
	in        cli.Scope
}

// NewDiff returns the verb that lists changed files. CRI has no call for it. crishim's dockershim has one in its private
// service; on containerd the upper directory of the overlay has the changes.
func NewDiff(in *cli.Invocation) *cli.Verb {
	o := &diffOptions{}
	return &cli.Verb{
		Usage:     "List changes to files of a container since its creation",
		ArgsUsage: "CONTAINER",
		Args:      cli.First(cli.CompleteContainers(), nil),
		Description: cli.WithExamples("Prints one line for each file or directory that was added (A), changed (C) or deleted (D). The container does not need to run.\n"+
			"Works on Docker, and as root on a node with containerd; not on other runtimes.",
			"crishim diff web", "crishim diff web | grep ^D"),
		Flags: []urfave.Flag{o.in.NamespaceFlag()},
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *diffOptions) check(_ *cli.Invocation, c *urfave.Context) error {
	o.container = c.Args().First()
	return cli.ArgCount(c, 1, 1)
}

func (o *diffOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	c, err := conn.FindContainer(ctx, o.in.Query(o.container, client.PreferRunning))
	if err != nil {
		return err
	}
	say := func(kind, path string) error { return printer.Say("%s %s", kind, path) }
	err = conn.ContainerChanges(ctx, c.GetId(), say)
	if !errors.Is(err, client.ErrNotDockershim) {
		return err
	}
	store, ok := containerd.Open(ctx, conn.ClientConn())
	if !ok {
		return fmt.Errorf("Unimplemented by %s: it has no call for the changes of a container", cmp.Or(conn.Version.GetRuntimeName(), conn.RuntimeEndpoint)) //nolint:staticcheck // as gRPC writes the code
	}
	if !strings.HasPrefix(conn.RuntimeEndpoint, "unix:") {
		return cli.WithHint(fmt.Errorf("the files of %s may be on another machine", conn.RuntimeEndpoint), "run crishim there")
	}
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
	if err != nil {
		return err
	}
	files, err := store.Overlay(ctx, res.GetInfo())
	if err != nil {
		return err
	}
	return changes(ctx, files, say)
}

// changes compares the upper directory with the layers, in the order of paths. The container may write there at the
// same time, so links out of the directory are not followed.
func changes(ctx context.Context, o containerd.Overlay, say func(kind, path string) error) error {
	top, err := os.OpenRoot(o.Upper)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("reading %s needs root", o.Upper)
	}
	if errors.Is(err, fs.ErrNotExist) { // crishim may run in a container that has only the runtime's socket
		return cli.WithHint(fmt.Errorf("the container's files are in %s of the runtime's host, which is not to be seen from here", o.Upper), "run crishim on the host itself")
	}
	if err != nil {
		return err
	}
	defer top.Close()
	w := &changeWalk{Overlay: o, top: top, say: say}
	defer func() {
		for _, l := range w.layers {
			_ = l.Close()
		}
	}()
	for _, dir := range o.Lower {
		l, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		w.layers = append(w.layers, l)
	}
	return w.walk(ctx, ".", false)
}

type changeWalk struct {
	containerd.Overlay

	top     *os.Root
	layers  []*os.Root
	say     func(kind, path string) error
	parents []change // directories that are reported only with an entry below them
}

type change struct{ kind, path string }

// openDir opens a directory, and fails for a link that has replaced it.
const openDir = os.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW

// walk compares one directory. hidden is set below an opaque directory, which hides the layers.
func (w *changeWalk) walk(ctx context.Context, dir string, hidden bool) error {
	f, err := w.top.OpenFile(dir, openDir, 0)
	if err != nil && dir != "." {
		return nil //nolint:nilerr // removed in the meantime
	}
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name = path.Join(dir, name)
		info, err := w.top.Lstat(name)
		if err != nil {
			continue // removed in the meantime
		}
		var below fs.FileInfo
		if !hidden {
			below = find(w.layers, name)
		}
		replaced := info.IsDir() && overlay.Opaque(w.top, name)
		if err := w.compare("/"+name, info, below, replaced); err != nil {
			return err
		}
		if info.IsDir() && len(name) < unix.PathMax {
			if err := w.walk(ctx, name, hidden || replaced); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare reports one path. below is the file in the layers, or nil; replaced means that an opaque directory replaces
// it.
func (w *changeWalk) compare(name string, info, below fs.FileInfo, replaced bool) error {
	w.parents = slices.DeleteFunc(w.parents, func(p change) bool { return !strings.HasPrefix(name, p.path+"/") })
	c := change{"A", name}
	switch {
	case below == nil && overlay.Whiteout(info): // the whiteout hides no file of the layers
		return nil
	case overlay.Whiteout(info):
		c.kind = "D"
	case below != nil:
		c.kind = "C"
	}
	unchanged := below == nil && w.mountedIn(name) || below != nil && !replaced && sameOwner(info, below)
	switch {
	case info.IsDir() && unchanged:
		w.parents = append(w.parents, c)
		return nil
	case info.Mode().IsRegular() && info.Size() == 0 && slices.Contains(w.Mounts, name):
		return nil
	}
	for _, p := range append(w.parents, c) {
		if err := w.say(p.kind, p.path); err != nil {
			return err
		}
	}
	w.parents = nil
	return nil
}

func (w *changeWalk) mountedIn(dir string) bool {
	return slices.ContainsFunc(w.Mounts, func(m string) bool { return m == dir || strings.HasPrefix(m, dir+"/") })
}

// sameOwner compares owner and mode of two directories. Their times change with their entries.
func sameOwner(a, b fs.FileInfo) bool {
	one, ok := a.Sys().(*syscall.Stat_t)
	other, both := b.Sys().(*syscall.Stat_t)
	return ok && both && one.Mode == other.Mode && one.Uid == other.Uid && one.Gid == other.Gid
}

// find returns the file at a path of the layers, or nil. The topmost layer with a file, a whiteout or an opaque
// directory decides.
func find(layers []*os.Root, name string) fs.FileInfo {
	for _, l := range layers {
		for dir := name; ; dir = path.Dir(dir) {
			info, err := l.Lstat(dir)
			switch {
			case err == nil && dir == name && !overlay.Whiteout(info):
				return info
			case err == nil && (dir == name || overlay.Whiteout(info) || !info.IsDir() || overlay.Opaque(l, dir)):
				return nil
			}
			if dir == "." {
				break
			}
		}
	}
	return nil
}
