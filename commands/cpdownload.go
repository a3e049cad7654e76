package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crishim/crishim/commands/archive"
)

// download reads a tar stream from the container. The container is not
// trusted: archive.Unpack keeps everything below the destination.
func (p *copier) download(ctx context.Context) error {
	dir, name := splitRemote(p.from)
	if p.to == "-" {
		return p.files.read(ctx, dir, name, p.env.Out)
	}
	into, as, err := destination(p.to, path.Base(name))
	if err != nil {
		return err
	}
	o := p.archiveOptions()
	o.Strip, o.Name = name != ".", as
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := archive.Unpack(r, root, o)
		_, _ = io.Copy(io.Discard, r) // tar pads its stream; it must not hang in that
		unpacked <- err
		r.CloseWithError(err)
	}()
	err = p.files.read(ctx, dir, name, w)
	w.CloseWithError(err) // nil is the end of the stream
	unpackErr := <-unpacked
	if err != nil {
		return err
	}
	return unpackErr
}

// splitRemote gives the directory for tar to go to and what to take there. It
// does not begin with a dash, however the file is called.
func splitRemote(from string) (dir, name string) {
	clean := path.Clean("/" + from)
	if clean == "/" || strings.HasSuffix(from, "/.") || from == "." {
		return clean, "."
	}
	return path.Dir(clean), "./" + path.Base(clean)
}

// destination decides where to unpack and as what; an empty name is the
// contents of a directory.
func destination(to, base string) (dir, name string, err error) {
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
		if base == "." {
			return to, "", nil
		}
		return to, base, nil
	case err == nil && strings.HasSuffix(to, "/"):
		return "", "", fmt.Errorf("%s is no directory", to)
	case err == nil:
	case !errors.Is(err, os.ErrNotExist):
		return "", "", err
	}
	parent := filepath.Dir(filepath.Clean(to))
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return "", "", fmt.Errorf("there is no directory %s here", parent)
	}
	return parent, filepath.Base(to), nil
}
