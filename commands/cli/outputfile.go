package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/shellwords"
)

// outputFile is a file that appears at its path when it is complete. Until then it has no name, so that a killed
// process leaves nothing behind.
type outputFile struct {
	*os.File
	path    string
	unnamed bool
	temp    string // its name until it is complete, on file systems without unnamed files
}

// CheckOutput checks the value of --output for an archive; "" and "-" are standard output, which must not be a
// terminal.
func CheckOutput(terminal bool, path string) error {
	dir := filepath.Dir(path)
	switch {
	case path == "" || path == "-":
		if terminal {
			return Usagef("standard output is a terminal, which cannot show an archive: use -o FILE, or redirect standard output")
		}
	case IsDir(path):
		return Invalid("output", path, "is a directory")
	case !IsDir(dir):
		return Invalid("output", path, "there is no directory "+dir)
	}
	return nil
}

// WriteOutput calls write with standard output, or with a file that it creates first.
func WriteOutput(out io.Writer, path string, write func(io.Writer) error) error {
	if path == "" || path == "-" {
		return write(out)
	}
	file, err := createOutput(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := write(file.File); err != nil {
		return err
	}
	return file.Commit()
}

// createOutput creates the file for a path. Commit replaces an existing file or symbolic link. A pipe, a device or a
// socket is refused, because it may belong to another user. A user writes to a pipe with "-" and a redirection.
func createOutput(path string) (*outputFile, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		return nil, WithHint(fmt.Errorf("%s is there and is no regular file", path), "- writes to standard output, which the shell can redirect: `-o - >%s`", shellwords.Quote(path))
	}
	dir := filepath.Dir(path)
	if fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
		return &outputFile{File: os.NewFile(uintptr(fd), path), path: path, unnamed: true}, nil
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		var pathError *os.PathError
		if errors.As(err, &pathError) {
			pathError.Path = path // not the temporary name
		}
		return nil, err
	}
	return &outputFile{File: f, path: path, temp: f.Name()}, nil
}

// Commit renames the file to its path.
func (o *outputFile) Commit() error {
	if o.unnamed {
		o.temp = filepath.Join(filepath.Dir(o.path), fmt.Sprintf(".%s-%d", filepath.Base(o.path), os.Getpid()))
		if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", o.File.Fd()), unix.AT_FDCWD, o.temp, unix.AT_SYMLINK_FOLLOW); err != nil {
			o.temp = ""
			return &os.PathError{Op: "create", Path: o.path, Err: err}
		}
	}
	if err := o.File.Close(); err != nil || o.temp == "" {
		return err
	}
	if err := os.Rename(o.temp, o.path); err != nil {
		return err
	}
	o.temp = ""
	return nil
}

// Close removes a file that was not committed. It may be called after Commit.
func (o *outputFile) Close() {
	_ = o.File.Close()
	if o.temp != "" {
		_ = os.Remove(o.temp)
	}
}

// IsFile reports whether path exists and is not a directory.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// IsDir reports whether path is a directory.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
