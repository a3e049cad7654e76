// Package bounded reads files whose size somebody else decides: a device such as
// /dev/zero has no end, and would take all memory.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Config is how long a file that a user wrote may be, in bytes. Nobody types more.
const Config = 64 << 20

// ReadAll reads to the end, which must come within a number of bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("more than %d MiB are too much", limit>>20)
	}
	return text, err
}

// ReadFile reads a file, or a pipe as shells make them of <(command).
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	return readAll(f, err, limit)
}

// ReadRegular reads a file that somebody else names: no device, and no pipe, which
// may be silent forever.
func ReadRegular(path string, limit int64) ([]byte, error) {
	f, err := OpenFile(path, os.O_RDONLY)
	return readAll(f, err, limit)
}

func readAll(f *os.File, err error, limit int64) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := ReadAll(f, limit)
	var known *fs.PathError
	if err != nil && !errors.As(err, &known) {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return text, err
}

// OpenFile opens a regular file that somebody else names or writes. It waits for nobody: not
// for the other end of a pipe, and not for a container that has a lease on the file.
func OpenFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Open opens a regular file that somebody else may have replaced: a symbolic link
// in its place is not followed, and a pipe is not waited for.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW) }

var errNotRegular = errors.New("no regular file")
