package volume

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/bounded"
)

// maxFile is how large a file for variables may be, as a ConfigMap.
const maxFile = 1 << 20

// ReadFile reads a file that containers have written to a volume. It follows links inside the volume, and none that
// leads out of it.
func ReadFile(made Made, name string) ([]byte, error) {
	root, err := os.OpenRoot(made.Path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO has no writer
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
