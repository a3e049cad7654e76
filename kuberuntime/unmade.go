package kuberuntime

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/internal/glob"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Unmade is a recorded pod without a sandbox.
type Unmade struct {
	Pod    *v1.Pod
	State  *PodState // nil without a state file
	Reason string    // why the sandbox is missing: FailedCreatePodSandBox, FailedMount, or the pod's end; "" if unknown
}

// FindUnmade returns recorded pods that may have no sandbox, except pods for which has returns true. It only reads
// files, so a pod may belong to another runtime. See IsUnmade.
func FindUnmade(d pod.Dirs, has func(uid string) bool) (found []Unmade) {
	uids, _ := listDir(d.Pods())
	for _, uid := range uids {
		if has(uid) {
			continue
		}
		state, _ := ReadState(d, uid)
		if state != nil && state.Sandbox != "" && !state.Managed { // another tool removed the pod
			continue
		}
		u := Unmade{State: state}
		events, _ := podEvents(d, uid)
		if e := LastFailure(events, ""); e != nil && e.Container == "" {
			u.Reason = e.Reason
		} else if state == nil || !state.Managed {
			continue
		} else {
			u.Reason = state.Ended()
		}
		if record, err := readRecord(d, uid); err == nil {
			u.Pod = record.Pod
			found = append(found, u)
		}
	}
	return found
}

// IsUnmade reports whether a pod from FindUnmade belongs to this runtime and has no sandbox or container.
func (m *Manager) IsUnmade(ctx context.Context, u Unmade) bool {
	uid := string(u.Pod.UID)
	if _, own := m.ownRecord(ctx, uid); !own {
		return false
	}
	sandboxes, containers, err := m.labelled(ctx, uid)
	return err == nil && len(sandboxes)+len(containers) == 0
}

// LivePods lists the pods of the runtime, and its recorded pods without a sandbox that a running apply or sync manages, or
// whose sandbox or volumes could not be created. KnownPods lists all recorded pods.
func (m *Manager) LivePods(ctx context.Context) ([]*pod.Pod, error) {
	pods, err := m.GetPods(ctx, true)
	if err != nil {
		return nil, err
	}
	has := func(uid string) bool { return slices.ContainsFunc(pods, func(p *pod.Pod) bool { return p.UID == uid }) }
	for _, u := range FindUnmade(m.o.Dirs, has) {
		if _, own := m.ownRecord(ctx, string(u.Pod.UID)); own {
			pods = append(pods, &pod.Pod{UID: string(u.Pod.UID), Name: u.Pod.Name, Namespace: u.Pod.Namespace})
		}
	}
	return pods, nil
}

// InvalidManifest is a file that sync cannot read pods from.
type InvalidManifest struct {
	File     string   `json:"file"` // the file, or the directory if the directory itself cannot be read
	Problems []string `json:"problems"`
}

// keepInvalid writes the list of invalid manifests to a file next to the lock of the directory.
func (l *Loop) keepInvalid(err error) {
	var invalid []InvalidManifest
	var problems []error
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		problems = joined.Unwrap()
	} else if err != nil {
		problems = []error{err}
	}
	for _, problem := range problems {
		file := l.directory.path // default: a problem of the whole directory
		if of, ok := errors.AsType[*manifest.Error](problem); ok {
			file = of.File
		}
		i := slices.IndexFunc(invalid, func(one InvalidManifest) bool { return one.File == file })
		if i < 0 {
			i, invalid = len(invalid), append(invalid, InvalidManifest{File: file})
		}
		invalid[i].Problems = append(invalid[i].Problems, problem.Error())
	}
	l.report("list of invalid manifests", replaceChanged(invalidFile(dirLockPath(l.m.o.Dirs, l.directory.path)), invalid, &l.invalid))
}

func invalidFile(lock string) string { return strings.TrimSuffix(lock, ".lock") + ".invalid.json" }

// InvalidManifests returns the manifests that the running Loops of this host cannot read. A Loop runs while its lock is
// held.
func InvalidManifests(d pod.Dirs) (out []InvalidManifest) {
	locks, _ := filepath.Glob(filepath.Join(glob.Escape(d.Root), "sync", "*.lock"))
	for _, lock := range locks {
		var some []InvalidManifest
		text, _, err := readFile(invalidFile(lock))
		if err == nil && filelock.Held(lock) && json.Unmarshal(text, &some) == nil {
			out = append(out, some...)
		}
	}
	return out
}
