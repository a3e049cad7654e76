package shim

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestSweepRemovesOnlyWhatIsAbandoned(t *testing.T) {
	base := shortDir(t)
	alive, err := newRunDir(base)
	if err != nil {
		t.Fatal(err)
	}
	mkdir := func(name string, age time.Duration) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := []string{mkdir(dirPrefix+"dead", 0), mkdir(birthPrefix+"old", time.Hour)}
	kept := []string{alive.path, mkdir(birthPrefix+"young", 0), mkdir("stranger", time.Hour)}
	link := filepath.Join(base, dirPrefix+"link")
	if err := os.Symlink(kept[2], link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(gone[0], socketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sweep(t.Context(), base, "", nil, nil)
	for _, path := range gone {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	for _, path := range append(kept, link) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
	if err := alive.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(alive.path); !os.IsNotExist(err) {
		t.Errorf("got %v, want the directory gone", err)
	}
}

func TestCheckOwnerRefuses(t *testing.T) {
	dir := shortDir(t)
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a directory that others can write to": open,
		"a link":                               link,
		"what is not there":                    filepath.Join(dir, "missing"),
	} {
		if checkOwner(path) == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		if err := os.Mkdir(foreign, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if checkOwner(foreign) == nil {
			t.Error("somebody else's directory was taken")
		}
		if _, err := lockDir(foreign); err == nil {
			t.Error("somebody else's directory was locked")
		}
	}
	if err := checkOwner(dir); err != nil {
		t.Errorf("our own directory: %v", err)
	}
}

// TestRunDirIsPrivateWhateverTheUmask: nobody else may look into the directory of a
// command, nor connect to its socket.
func TestRunDirIsPrivateWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o22, 0o77} {
		old := syscall.Umask(mask)
		dir, err := newRunDir(shortDir(t))
		if err == nil {
			l, listenErr := listenPrivate(dir.socket())
			if err = listenErr; err == nil {
				defer l.Close()
			}
		}
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{dir.path: 0o700, dir.socket(): 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %03o: %s: got %v, %v, want %o", mask, path, info.Mode(), err, want)
			}
		}
		if err := dir.remove(); err != nil {
			t.Error(err)
		}
	}
}
