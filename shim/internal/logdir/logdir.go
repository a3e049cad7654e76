// Package logdir opens the directories of container logs. The pod's log directory comes from the caller and is trusted.
// Its content is not trusted, because the directory may be mounted into a container: links that lead out of it are not
// followed.
package logdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/crishim/crishim/shim/state"
)

const dirMode = 0o755

type Place struct {
	Base string // the pod's log directory; "" if another shim created the container
	Path string // absolute path of the file; "" for no log
}

func Of(c state.Container) Place { return Place{Base: c.LogDir, Path: c.LogPath} }

func (p Place) Open() (*os.Root, string, error) {
	return p.open(true)
}

func (p Place) OpenExisting() (*os.Root, string, error) { return p.open(false) }

func (p Place) open(mkdir bool) (*os.Root, string, error) {
	dir, name := filepath.Split(filepath.Clean(p.Path))
	base, below := filepath.Clean(dir), "."
	if rest, ok := strings.CutPrefix(base+"/", filepath.Clean(p.Base)+"/"); ok && p.Base != "" {
		base, below = filepath.Clean(p.Base), filepath.Clean("./"+rest)
	}
	if mkdir {
		if err := os.MkdirAll(base, dirMode); err != nil {
			return nil, "", fmt.Errorf("directory of the log: %w", err)
		}
	}
	root, err := os.OpenRoot(base)
	if err != nil || below == "." {
		return root, name, err
	}
	defer root.Close()
	if mkdir {
		if err := root.MkdirAll(below, dirMode); err != nil {
			return nil, "", fmt.Errorf("directory of the log in %s: %w", base, err)
		}
	}
	inner, err := root.OpenRoot(below)
	if err != nil {
		return nil, "", fmt.Errorf("directory of the log in %s: %w", base, err)
	}
	return inner, name, nil
}
