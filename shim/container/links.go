package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// links keeps container logs where no process stays behind to write them: a
// symbolic link at the wanted path leads to the engine's own file.
type links struct{}

// Started makes the link where nothing exists. An engine that keeps no file,
// or keeps it on another host, has no link.
func (links) Started(_ context.Context, _, path, file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("directory of the log: %w", err)
	}
	err := os.Symlink(file, path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Removing has nothing to wait for: the link's target is the engine's.
func (links) Removing(context.Context, string) {}

// Removed takes away the link that leads to this container's file, and nothing
// else: a log file that somebody wrote stays.
func (links) Removed(_ context.Context, _, path, file string) error {
	target, err := os.Readlink(path)
	if err != nil || target != file {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
