package bounded

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	unchecked = 32 << 20 // bytes to write before the first check
	reserve   = 64 << 20 // bytes to keep free
	files     = 1000     // inodes to keep free
)

// PerFile is the number of bytes that callers pass to Take for each entry, in addition to its content.
const PerFile = 4 << 10

// Disk keeps a copy from filling the disk. It checks the free space after 32 MiB and then whenever half of the
// remaining space was used. The zero value is ready to use.
type Disk struct{ written, allowed int64 }

// Take records that n more bytes will be written to f. It fails if these bytes would leave less than 64 MiB on the file
// system of f, or if 1,000 or fewer inodes are free.
func (d *Disk) Take(f *os.File, n int) error {
	if d.written += int64(n); d.written <= max(d.allowed, unchecked) {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	left, err := room(&st, int64(n))
	d.allowed = d.written + left/2
	return err
}

// room returns the number of bytes that may be written, at most PerFile for each inode that may be used. It fails if n
// bytes are too many, or if 1,000 or fewer inodes are free. File systems without an inode limit report 0 inodes in total,
// or the maximum integer as the number of free inodes.
func room(st *unix.Statfs_t, n int64) (int64, error) {
	left := int64(st.Bavail)*int64(st.Bsize) - reserve //nolint:unconvert // the type differs between architectures
	switch {
	case left < n:
		return 0, fmt.Errorf("less than %d MiB are left on its disk", reserve>>20)
	case st.Files == 0:
		return left, nil
	case st.Ffree <= files:
		return 0, fmt.Errorf("less than %d files can still be made on its disk", files)
	}
	return min(left, int64(min(st.Ffree-files, 1<<40))*PerFile), nil
}

// DiskWriter writes to a file until the disk is nearly full.
type DiskWriter struct {
	File *os.File
	disk Disk
}

func (w *DiskWriter) Write(p []byte) (int, error) {
	if err := w.disk.Take(w.File, len(p)); err != nil {
		return 0, fmt.Errorf("%s: %w", w.File.Name(), err)
	}
	return w.File.Write(p)
}
