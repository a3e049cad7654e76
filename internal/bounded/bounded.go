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
	return readFile(path, limit, os.O_RDONLY, func(fs.FileMode) bool { return true })
}

// ReadRegular reads a file that somebody else names: no device, and no pipe, which
// may be silent for ever.
func ReadRegular(path string, limit int64) ([]byte, error) {
	return readFile(path, limit, os.O_RDONLY|syscall.O_NONBLOCK, fs.FileMode.IsRegular)
}

func readFile(path string, limit int64, flags int, fits func(fs.FileMode) bool) ([]byte, error) {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fits(info.Mode()) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	text, err := ReadAll(f, limit)
	var known *fs.PathError
	if err != nil && !errors.As(err, &known) {
		err = &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return text, err
}

var errNotRegular = errors.New("no regular file")
