package bounded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// Open opens a regular file that somebody else may have replaced: a symbolic link
// in its place is not followed, and a pipe is not waited for.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW) }

// OpenLog opens a container's log. The container may have replaced it where the
// pod's log directory is mounted into it. Only one link is followed, that of a
// dockershim to the file of the engine, which is ID/ID-json.log wherever the engine
// keeps it; a container can have its like only among its own files.
func OpenLog(path string) (*os.File, error) {
	f, err := Open(path)
	if !errors.Is(err, syscall.ELOOP) {
		return f, err
	}
	target, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	id := filepath.Base(filepath.Dir(target))
	if !filepath.IsAbs(target) || !containerID.MatchString(id) || filepath.Base(target) != id+"-json.log" {
		return nil, fmt.Errorf("log %s is a link to %s, which is no log of a container engine", path, strings.ToValidUTF8(target, "?"))
	}
	return Open(target)
}

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)
