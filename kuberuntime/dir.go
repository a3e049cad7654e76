package kuberuntime

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
)

// desired is a pod that a directory asks for.
type desired struct {
	pod *v1.Pod
	set *manifest.Set
}

// directory is a directory of manifests and what was last read from it: the kubelet's file source.
type directory struct {
	path      string
	now       func() time.Time
	signature string
	pods      map[string]desired // by uid
	complete  bool               // everything in the directory could be read
}

// read reads the directory if anything in it has changed. On a problem the pods of the valid
// files stay wanted, and complete is false: a typing mistake must not end a pod.
func (f *directory) read() (changed bool, err error) {
	files, err := manifest.DirFiles(f.path)
	if err != nil {
		f.complete, f.signature = false, ""
		return false, err
	}
	signature := signatureOf(files)
	if signature == f.signature {
		return false, nil
	}
	f.signature = signature
	set, err := manifest.Read(strings.NewReader(""), files...)
	var problems manifest.Errors
	if err != nil && !errors.As(err, &problems) {
		f.complete, f.signature = false, ""
		return false, err
	}
	broken := map[string]bool{}
	for _, p := range problems {
		broken[p.File] = true
	}
	pods := map[string]desired{}
	for _, p := range set.Pods {
		if broken[p.Source.File] {
			continue
		}
		if err := Prepare(p.Pod, f.path, f.now()); err != nil {
			return false, err
		}
		pods[string(p.UID)] = desired{p.Pod, set}
	}
	f.pods, f.complete = pods, len(problems) == 0
	return true, err
}

func signatureOf(files []string) string {
	var out strings.Builder
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			fmt.Fprintf(&out, "%s gone\n", file)
			continue
		}
		fmt.Fprintf(&out, "%s %d %d\n", file, info.Size(), info.ModTime().UnixNano())
	}
	return out.String() + "read"
}

// wantsName reports whether the directory has a pod of this name.
func (f *directory) wantsName(namespace, name string) bool {
	for _, d := range f.pods {
		if d.pod.Namespace == namespace && d.pod.Name == name {
			return true
		}
	}
	return false
}
