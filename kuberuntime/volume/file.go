package volume

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/bounded"
)

// maxFile limits the size of an env file. A ConfigMap has the same limit.
const maxFile = 1 << 20

// ReadFile reads a file that containers have written to a volume. It follows links inside the volume and refuses links
// that lead out of it.
func ReadFile(made Made, name string) ([]byte, error) {
	root, err := os.OpenRoot(made.Path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // without O_NONBLOCK, a FIFO waits for a writer
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err // the caller names the file
		}
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return bounded.ReadAll(f, maxFile)
}
