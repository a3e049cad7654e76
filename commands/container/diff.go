package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/commands/cli"
)

type diffOptions struct {
	container string
	in        cli.Within
}

// NewDiff returns the verb that lists what a container has changed. CRI has no call for that: our own shim has its
// private service, containerd a directory of the changes.
func NewDiff(env *cli.Env) *urfave.Command {
	o := &diffOptions{}
	return &urfave.Command{
		Name:      "diff",
		Usage:     "list what a container has changed in the files of its image",
		ArgsUsage: "CONTAINER",
		Description: cli.WithExamples("One line for each file or directory that was added (A), changed (C) or deleted (D). The container need not run. Works on Docker, and on\n"+
			"containerd as root of its machine; not on other runtimes.",
			"crishim diff web", "crishim diff web | grep ^D"),
		Flags:  []urfave.Flag{o.in.NamespaceFlag("n")},
		Action: env.Connected(o.check, o.run),
	}
}

func (o *diffOptions) check(_ *cli.Env, c *urfave.Context) error {
	o.container = c.Args().First()
	return cli.ArgCount(c, 1, 1)
}

func (o *diffOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	c, err := conn.FindContainer(ctx, o.in.Query(o.container, client.PreferRunning))
	if err != nil {
		return err
	}
	say := func(kind, path string) error { return env.Say("%s %s", kind, path) }
	err = conn.ContainerChanges(ctx, c.GetId(), say)
	if !errors.Is(err, client.ErrNotOurShim) {
		return err
	}
	store, ok := containerd.Open(ctx, conn.ClientConn())
	if !ok {
		return fmt.Errorf("Unimplemented by %s: it has no call for what a container has changed", cmp.Or(conn.Version.GetRuntimeName(), conn.RuntimeEndpoint)) //nolint:staticcheck // as gRPC writes the code
	}
	if !strings.HasPrefix(conn.RuntimeEndpoint, "unix:") {
		return cli.WithHint(fmt.Errorf("the files of %s may be on another machine", conn.RuntimeEndpoint), "run crishim there")
	}
	upper, lower, err := overlayOf(ctx, conn, store, c.GetId())
	if err != nil {
		return err
	}
	return changes(ctx, upper, lower, say)
}

// overlayOf returns the directories of a container of containerd, whose status has the names of its snapshot.
func overlayOf(ctx context.Context, conn *client.Conn, store *containerd.Store, id string) (string, []string, error) {
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return "", nil, err
	}
	var details struct{ Snapshotter, SnapshotKey string }
	if err := json.Unmarshal([]byte(res.GetInfo()["info"]), &details); err != nil || details.SnapshotKey == "" {
		return "", nil, fmt.Errorf("%s does not tell where the container's files are", conn.RuntimeEndpoint)
	}
	return store.Overlay(ctx, details.Snapshotter, details.SnapshotKey)
}

// changes compares the upper directory of an overlay with the layers below it, in the order of paths. The container may
// write there meanwhile: no link that it creates leads out of the directory.
func changes(ctx context.Context, upper string, lower []string, say func(kind, path string) error) error {
	top, err := os.OpenRoot(upper)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("reading %s needs root", upper)
	}
	if errors.Is(err, fs.ErrNotExist) { // this is a pod, or a container, that has the runtime's socket
		return cli.WithHint(fmt.Errorf("the container's files are in %s of the runtime's host, which is not to be seen from here", upper), "run crishim on the host itself")
	}
	if err != nil {
		return err
	}
	defer top.Close()
	var layers []*os.Root
	defer func() {
		for _, l := range layers {
			_ = l.Close()
		}
	}()
	for _, dir := range lower {
		l, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		layers = append(layers, l)
	}
	hidden := map[string]bool{} // directories in which nothing of the layers is seen
	return fs.WalkDir(top.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) || name == "." {
			return nil // it has gone meanwhile
		}
		if err != nil {
			return err
		}
		info, err := top.Lstat(name)
		if err != nil {
			return nil //nolint:nilerr // it has gone meanwhile
		}
		if info.IsDir() {
			hidden[name] = hidden[path.Dir(name)] || opaque(top, name)
		}
		below := !hidden[path.Dir(name)] && present(layers, name)
		switch {
		case whiteout(info) && below:
			return say("D", "/"+name)
		case whiteout(info): // of what was never there
			return nil
		case below:
			return say("C", "/"+name)
		}
		return say("A", "/"+name)
	})
}

// present reports whether the layers have a path: the topmost that says something about it decides.
func present(layers []*os.Root, name string) bool {
	for _, l := range layers {
		for dir := name; ; dir = path.Dir(dir) {
			info, err := l.Lstat(dir)
			switch {
			case err == nil && dir == name:
				return !whiteout(info)
			case err == nil && (whiteout(info) || !info.IsDir() || opaque(l, dir)):
				return false
			}
			if dir == "." {
				break
			}
		}
	}
	return false
}

// whiteout reports whether a file stands for one that was deleted: a device with the number 0.
func whiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// opaque reports whether nothing of the layers below is seen in a directory.
func opaque(l *os.Root, dir string) bool {
	f, err := l.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	var value [1]byte
	n, err := unix.Fgetxattr(int(f.Fd()), "trusted.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}
