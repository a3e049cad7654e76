package kuberuntime

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// settleTime is how long a file must be unchanged before it is read: its writer may not be done.
const settleTime = 2 * time.Second

type desired struct {
	pod *v1.Pod
	set *manifest.Set
}

// directory holds a directory of manifests and its content at the last read, like the kubelet's file source.
type directory struct {
	path    string // as the user named it; a symbolic link is resolved at each read
	options manifest.Options
	now     func() time.Time
	settle  time.Duration

	origin   origin             // the directory that last had manifests; zero once they were all removed
	began    time.Time          // when the directory was first listed
	listed   bool               // the directory could be listed at the last read
	files    map[string]*source // by path
	pods     map[string]desired // by uid
	broken   map[string]bool    // files with problems
	problem  error
	warnings []string // parts of manifests that have no effect
	// settled reports whether the directory was listed and all changed files were read. An empty directory is settled only
	// after the settle time, because its file system may be mounted soon.
	settled bool
}

// origin identifies a directory. Loop keeps it in a file, for a restart while the file system is not mounted.
type origin struct {
	Real string `json:"real"` // without symbolic links
	ID   string `json:"id"`   // device and inode
}

type source struct {
	stamp   string    // changes with the file
	seen    time.Time // when the stamp was first seen; for the first list, when the file was changed
	pending bool      // the file has changed since its content was read
	data    []byte
	err     error
	good    []byte // the last content without a problem
}

const gone = "gone"

// stampOf identifies the content of a file by attributes that a writer cannot set, because reproducible files share size
// and modification time.
func stampOf(path string) (stamp string, changed time.Time) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err != nil {
			return gone, time.Time{}
		}
	}
	if err != nil {
		return err.Error(), time.Time{}
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Dev, stat.Ino, info.Size(), info.ModTime().UnixNano(), stat.Ctim), time.Unix(stat.Ctim.Unix())
}

// read reads each changed file after it was unchanged for the settle time. For a file with a problem, the pods of its
// last valid content are kept. If the directory cannot be listed, nothing changes.
func (f *directory) read() (changed bool, err error) {
	f.settled, f.listed = false, false
	first := f.files == nil
	if err := f.list(); err != nil {
		return false, err
	}
	f.listed = true
	now := f.now()
	if first {
		f.began = now
	}
	pending := len(f.files) == 0 && now.Sub(f.began).Abs() < f.settle // the file system may be mounted soon
	for path, s := range f.files {
		stamp, changedAt := stampOf(path)
		if stamp != s.stamp {
			s.stamp, s.seen, s.pending = stamp, now, true
			if first && !changedAt.IsZero() && changedAt.Before(now) {
				s.seen = changedAt
			}
		}
		if !s.pending {
			continue
		}
		if now.Sub(s.seen).Abs() < f.settle || !s.read(path) {
			pending = true
			continue
		}
		changed = true
		if stamp == gone {
			delete(f.files, path)
		}
	}
	f.settled = !pending
	if f.settled && len(f.files) == 0 {
		f.origin = origin{}
	}
	if changed {
		f.problem = f.parse()
	}
	return changed, f.problem
}

// list adds new files; read drops missing files. An unmounted file system leaves another, empty directory at the same
// path. list then returns an error, so that read drops no files.
func (f *directory) list() error {
	names, now, err := f.entries()
	if err != nil {
		return fmt.Errorf("no pod is started or removed until the manifests of %s can be read: %w", f.path, err)
	}
	if len(names) == 0 && now.Real == f.origin.Real && now.ID != f.origin.ID {
		return fmt.Errorf("%s is another directory than before and has no manifests (was it unmounted?): its pods stay", f.path)
	}
	if len(names) > 0 {
		f.origin = now
	}
	if f.files == nil {
		f.files = map[string]*source{}
	}
	for _, name := range names {
		if f.files[name] == nil {
			f.files[name] = &source{}
		}
	}
	return nil
}

func (f *directory) entries() ([]string, origin, error) {
	real, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return nil, origin{}, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, origin{}, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	names, err := manifest.DirFiles(f.path)
	return names, origin{real, fmt.Sprint(stat.Dev, stat.Ino)}, err
}

// read reads the content, and reports whether the file was unchanged in the meantime.
func (s *source) read(path string) bool {
	s.data, s.err = nil, nil
	if s.stamp != gone {
		s.data, s.err = bounded.ReadFile(path, manifest.MaxSize)
	}
	if stamp, _ := stampOf(path); stamp != s.stamp {
		return false
	}
	if s.err == nil && manifest.Empty(s.data) {
		s.err = errors.New("the file has no document")
	}
	s.pending = false
	return true
}

// parse sets the wanted pods. For a file with a problem it uses the last valid content, and returns the problem.
func (f *directory) parse() error {
	f.broken = map[string]bool{}
	var problems []error
	use := map[string][]byte{}
	for path, s := range f.files {
		switch {
		case s.stamp == "" || s.pending && s.good == nil: // not read yet
		case s.pending:
			use[path] = s.good
		case s.err != nil:
			f.broken[path] = true
			problems = append(problems, &manifest.Error{Source: manifest.Source{File: path}, Problem: s.err.Error()})
			if s.good != nil {
				use[path] = s.good
			}
		default:
			use[path] = s.data
		}
	}
	set, err := f.parseFiles(use)
	for err != nil { // each round drops a bad file or uses its last good content
		found, ok := errors.AsType[manifest.Errors](err)
		if !ok {
			return errors.Join(append(problems, err)...)
		}
		bad := map[string]bool{}
		for _, p := range found {
			if !f.broken[p.File] {
				problems = append(problems, p)
			}
			bad[p.File] = true
		}
		for path := range bad {
			good := f.files[path].good
			if f.broken[path] || good == nil {
				delete(use, path)
			} else {
				use[path] = good
			}
			f.broken[path] = true
		}
		set, err = f.parseFiles(use)
	}
	pods := map[string]desired{}
	for _, p := range set.Pods {
		if err := Prepare(p.Pod, f.path, f.now()); err != nil {
			return err
		}
		p.Annotations[pod.FileAnnotation] = filepath.Base(p.Source.File)
		pods[string(p.UID)] = desired{p.Pod, set}
	}
	for path, s := range f.files {
		if !s.pending && !f.broken[path] {
			s.good = s.data
		}
	}
	f.pods, f.warnings = pods, set.Warnings
	return errors.Join(problems...)
}

func (f *directory) parseFiles(contents map[string][]byte) (*manifest.Set, error) {
	var files []manifest.File
	for _, path := range slices.Sorted(maps.Keys(contents)) {
		files = append(files, manifest.File{Name: path, Data: contents[path]})
	}
	return manifest.Parse(f.options, files...)
}

// complete reports whether all files were read and have no problem.
func (f *directory) complete() bool { return f.settled && len(f.broken) == 0 }

// dropped reports whether a pod from a file ("" for any) is no longer wanted. Pods of a file with a problem are not
// dropped.
func (f *directory) dropped(file string) bool {
	return f.complete() || f.settled && file != "" && !f.broken[filepath.Join(f.path, file)]
}

func (f *directory) wantsName(namespace, name string) bool {
	for _, d := range f.pods {
		if d.pod.Namespace == namespace && d.pod.Name == name {
			return true
		}
	}
	return false
}
