package bounded

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
)

// TestDiskWriterLeavesRoom uses a disk of 128 MiB, of which 64 MiB must stay free.
func TestDiskWriterLeavesRoom(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=128m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	f, err := os.Create(filepath.Join(dir, "spool"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := io.Copy(&DiskWriter{File: f}, io.LimitReader(endless{}, 1<<30))
	if err == nil || !strings.HasSuffix(err.Error(), "/spool: less than 64 MiB are left on its disk") {
		t.Errorf("got %v", err)
	}
	if n < 48<<20 || n > 64<<20 {
		t.Errorf("%d bytes were written", n)
	}
}

// TestRoomOfFiles: CephFS has no limit of inodes and says that -1 are free.
func TestRoomOfFiles(t *testing.T) {
	t.Parallel()
	const space = 1 << 30
	for name, tc := range map[string]struct {
		all, free uint64
		want      int64 // 0 for an error
	}{
		"no number": {0, 0, space - reserve},
		"-1":        {5000, ^uint64(0), space - reserve},
		"many":      {1 << 60, 1 << 55, space - reserve},
		"some":      {1 << 20, files + 10, 10 * PerFile},
		"too few":   {1 << 20, files, 0},
	} {
		got, err := room(&unix.Statfs_t{Bsize: 4096, Bavail: space / 4096, Files: tc.all, Ffree: tc.free}, 64<<10)
		if got != tc.want || (err != nil) != (tc.want == 0) {
			t.Errorf("%s: got %d, %v; want %d", name, got, err, tc.want)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
