package logs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errTaken says that another shim on the same engine writes a log.
var errTaken = errors.New("another shim writes this log")

// take makes this process the only writer of a log among the shims. The kernel
// gives it up with the file, however the process ends. A file system that knows no
// locks has as many writers as there are shims.
func take(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("log %s: %w", f.Name(), errTaken)
	}
	return nil
}

// change goes on in another file, which may be the same one opened anew.
func (f *follower) change(open func() (*os.File, error)) error {
	_ = unix.Flock(int(f.file.Fd()), unix.LOCK_UN)
	file, err := open()
	if err != nil {
		_ = take(f.file)
		return err
	}
	_ = f.file.Close()
	f.file = file
	f.out.Reset(disk{f, file})
	return nil
}
