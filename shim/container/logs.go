package container

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/crishim/crishim/shim/internal/logdir"
	"github.com/crishim/crishim/shim/state"
)

// Logs is told about containers whose log has a place outside the engine.
type Logs interface {
	// Starting: the engine is about to start the container, which may end before
	// Started is called. The returned function is called after that.
	Starting(id string) (over func())
	// Started: the container runs, its log is wanted there; file is the engine's
	// own log file, "" where the engine has none.
	Started(ctx context.Context, id string, at logdir.Place, file string) error
	// Unfinished reports whether lines of a container that has ended are still
	// missing in its log.
	Unfinished(ctx context.Context, id string) bool
	// Complete: the container has ended. Returns when its log holds all of it, or
	// is not getting there.
	Complete(ctx context.Context, id string)
	// Removed: the container is gone.
	Removed(ctx context.Context, id string, at logdir.Place, file string) error
}

func logPlace(m state.FoundContainer) logdir.Place {
	return logdir.Place{Base: m.LogDir, Path: m.LogPath}
}

// links keeps container logs where no process stays behind to write them: a
// symbolic link at the wanted path leads to the engine's own file.
type links struct{}

// Started makes the link where nothing exists. An engine that keeps no file,
// or keeps it on another host, has no link.
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

// Starting, Unfinished and Complete have nothing to wait for: the link's target is the
// engine's, and complete when the container has ended for the engine.
func (links) Starting(string) func()                  { return func() {} }
func (links) Unfinished(context.Context, string) bool { return false }
func (links) Complete(context.Context, string)        {}

// Removed takes away the link that leads to this container's file, and nothing
// else: a log file that somebody wrote stays.
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
