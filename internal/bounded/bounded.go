// Package bounded reads files up to a limit: what a user or a container names may be a
// device such as /dev/zero, which has no end and would take all memory.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Config is the limit for a file that a user wrote, in bytes.
const Config = 64 << 20

// ReadAll reads to the end and fails where there are more bytes than the limit.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("must not have more than %d MiB", limit>>20)
	}
	return text, err
}

// ReadFile reads a file, or a pipe as shells make them of <(command).
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	return readAll(f, err, limit)
}

// ReadRegular reads an untrusted file. It must not be a device, nor a pipe, which may
// block forever.
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

// OpenFile opens an untrusted regular file. It does not block: neither until a pipe has
// another end, nor until a container gives up its lease on the file.
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

// Open opens a regular file that may have been replaced: it does not follow a symbolic
// link, and does not block.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW) }

var errNotRegular = errors.New("not a regular file")
