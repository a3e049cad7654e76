package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crishim/crishim/commands/archive"
)

// localSource is what goes into a container.
type localSource struct {
	path     string // empty for a tar stream on stdin
	dir      bool
	contents bool // what the directory holds, without itself
}

func findSource(from string) (localSource, error) {
	if from == "-" {
		return localSource{}, nil
	}
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return localSource{}, fmt.Errorf("there is no %s here", from)
	}
	if err != nil {
		return localSource{}, err
	}
	s := localSource{path: from, dir: info.IsDir()}
	s.contents = s.dir && (filepath.Base(from) == "." || strings.HasSuffix(from, "/."))
	if !s.dir && strings.HasSuffix(from, "/") {
		return s, fmt.Errorf("%s is no directory", from)
	}
	if s.path, err = filepath.EvalSymlinks(from); err != nil {
		return s, err
	}
	return s, nil
}

// open gives the directory that packing stays in, and what to pack there.
func (s localSource) open() (root *os.Root, name string, err error) {
	if s.dir {
		root, err = os.OpenRoot(s.path)
		return root, ".", err
	}
	root, err = os.OpenRoot(filepath.Dir(s.path))
	return root, filepath.Base(s.path), err
}

// upload sends a tar stream to the container.
func (p *copier) upload(ctx context.Context, s localSource) error {
	isDir, known, err := p.files.isDir(ctx, p.to)
	if err != nil {
		return err
	}
	if !known {
		isDir = strings.HasSuffix(p.to, "/") || s.path == ""
	}
	if s.path == "" {
		if !isDir {
			return fmt.Errorf("%s in %s is no directory", p.to, containerName(p.container))
		}
		return p.files.write(ctx, p.to, p.env.In)
	}
	dir, name, err := place(s, filepath.Base(p.from), p.to, isDir)
	if err != nil {
		return fmt.Errorf("%s: %w", containerName(p.container), err)
	}
	root, from, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := archive.Pack(w, root, from, name, p.archiveOptions())
		packed <- err
		w.CloseWithError(err)
	}()
	err = p.files.write(ctx, dir, r)
	_ = r.Close() // a receiver that gave up leaves the packing in its write
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return packErr
	}
	return err
}

// place decides the directory to unpack in and the name to unpack as.
func place(s localSource, base, to string, isDir bool) (dir, name string, err error) {
	switch {
	case isDir && s.contents:
		return to, ".", nil
	case isDir:
		return to, base, nil
	case strings.HasSuffix(to, "/") && !s.dir:
		return "", "", fmt.Errorf("there is no directory %s", to)
	}
	clean := path.Clean(to)
	return path.Dir(clean), path.Base(clean), nil
}
