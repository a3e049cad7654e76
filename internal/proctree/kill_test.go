package proctree

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
)

// TestChannelsWaitForNoFileSystem opens a directory on a file system that does not answer, as with an unreachable
// server.
func TestChannelsWaitForNoFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		test.Missing(t, "needs root to mount")
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no FUSE here: ", err)
	}
	dir := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())
	if err := unix.Mount("silent", dir, "fuse", 0, options); err != nil {
		fuse.Close()
		t.Skip("no FUSE here: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	done := make(chan bool, 1)
	go func() {
		_, ok := channelAt(os.Getpid(), uintptr(fd))
		done <- ok
	}()
	select {
	case ok := <-done:
		if ok {
			t.Error("a directory was taken for a pipe or a terminal")
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits for the file system")
	}
	if err := fuse.Close(); err != nil { // all waiting requests fail
		t.Error(err)
	}
}
