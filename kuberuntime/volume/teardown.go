package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Teardown removes all that Setup and Mounts made for a pod.
func (m *Maker) Teardown(uid string) error {
	if !pod.IsUID(uid) {
		return fmt.Errorf("%q is no pod uid", uid)
	}
	dir := m.Dirs.Pod(uid)
	if err := unmountBelow(dir); err != nil {
		return err
	}
	return RemoveAll(dir)
}

// RemoveAll removes a folder with all in it, unless something is mounted there: what is
// mounted may be somebody else's files.
func RemoveAll(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("remove %s: %s is still mounted", dir, mounts[len(mounts)-1])
	}
	return os.RemoveAll(dir)
}

// unmountBelow ends all mounts at or below a folder. It begins at the top, and detaches
// what is mounted further below along with it: a path through a volume may lead elsewhere,
// as containers like. The list is read again after that, because a mount below is gone by
// its turn, and another may have come to light.
func unmountBelow(dir string) error {
	for before := -1; ; {
		mounts, err := mountsBelow(dir)
		if err != nil || len(mounts) == 0 {
			return err
		}
		var failed error
		for _, at := range mounts {
			if err := detach(at); err != nil {
				failed = errors.Join(failed, fmt.Errorf("unmount %s: %w", at, err))
			}
		}
		if len(mounts) == before {
			return failed
		}
		before = len(mounts)
	}
}

// detach ends a mount with all that is mounted below it, and no mount elsewhere: what a
// container with Bidirectional mounts is mounted below the volume and below its sub paths,
// and the kernel would end it in all places.
func detach(at string) error {
	if err := unix.Mount("", at, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
}

// mountsBelow lists mount points at or below a folder, in the order of mounting.
func mountsBelow(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var out []string
	for _, m := range mounts {
		out = append(out, dir+strings.TrimPrefix(m.Mountpoint, real))
	}
	return out, nil
}
