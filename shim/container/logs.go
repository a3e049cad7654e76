package container

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/crishim/crishim/shim/internal/logdir"
)

// Logs follows the life of containers that have a log path.
type Logs interface {
	// Starting is called before the engine starts the container, which may end before
	// Started is called. over is called after that, or when the start has failed.
	Starting(id string, at logdir.Place) (over func())
	// Started is called when the container runs; file is the engine's own log file, ""
	// where the engine has none.
	Started(ctx context.Context, id string, at logdir.Place, file string) error
	// Unfinished reports whether lines of a container that has ended are still
	// missing in its log.
	Unfinished(ctx context.Context, id string) bool
	// Complete waits until the log of a container that has ended is complete, or makes no
	// progress.
	Complete(ctx context.Context, id string)
	// Removed is called when the container is gone.
	Removed(ctx context.Context, id string, at logdir.Place, file string) error
}

// links keeps container logs where no process stays behind to write them: a
// symbolic link at the wanted path leads to the engine's own file.
type links struct{}

// Started makes the link where nothing exists, and where the engine keeps a file on this
// host.
func (links) Started(_ context.Context, _ string, at logdir.Place, file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	dir, name, err := at.Open()
	if err != nil {
		return err
	}
	defer dir.Close()
	err = dir.Symlink(file, name)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// The link's target is the engine's file, which is complete when the container has ended.
func (links) Starting(string, logdir.Place) func()    { return func() {} }
func (links) Unfinished(context.Context, string) bool { return false }
func (links) Complete(context.Context, string)        {}

// Removed removes a link to this container's file, and nothing else.
func (links) Removed(_ context.Context, _ string, at logdir.Place, file string) error {
	dir, name, err := at.OpenExisting()
	if err != nil {
		return nil // and no link in it
	}
	defer dir.Close()
	target, err := dir.Readlink(name)
	if err != nil || target != file {
		return nil
	}
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
