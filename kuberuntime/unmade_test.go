package kuberuntime

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestFindUnmade: a record belongs to a pod without a sandbox, or to a pod that another tool has removed.
func TestFindUnmade(t *testing.T) {
	t.Parallel()
	d := pod.Dirs{Root: t.TempDir()}
	record := func(uid, sandbox string, events ...Event) {
		t.Helper()
		for name, content := range map[string]any{
			"pod.json":     Record{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}}},
			"state-0.json": PodState{Sandbox: sandbox},
		} {
			text, err := json.Marshal(content)
			if err = errors.Join(err, os.MkdirAll(d.Pod(uid), 0o700)); err == nil {
				err = os.WriteFile(filepath.Join(d.Pod(uid), name), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range events {
			e.UID, e.Time = uid, time.Now()
			if err := AppendEvent(d, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused, made := Event{Reason: EventSandboxFailed, Message: "port is already allocated"}, Event{Reason: eventSandboxCreated}
	crash := Event{Container: "main", Reason: eventBackOff, Waiting: "CrashLoopBackOff", Message: "back-off"}
	record("refused", "", refused)
	record("no-volume", "", Event{Reason: EventVolumes})
	record("listed", "", refused)
	record("removed", "5555", made, crash)
	record("pruned", "", made, crash)
	record("young", "")
	var got []string
	for _, u := range FindUnmade(d, func(uid string) bool { return uid == "listed" }) {
		got = append(got, u.Pod.Name+" "+u.Reason)
	}
	if want := []string{"no-volume FailedMount", "refused FailedCreatePodSandBox"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestInvalidManifests: invalid manifests are listed while their sync runs, each file once.
func TestInvalidManifests(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	m := &Manager{o: Options{Dirs: pod.Dirs{Root: t.TempDir()}}}
	l, err := m.NewLoop(LoopOptions{Dir: directory})
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(file string) *manifest.Error {
		return &manifest.Error{Source: manifest.Source{File: file, Document: 1}, Problem: "required"}
	}
	l.keepInvalid(errors.Join(wrong("a.yaml"), wrong("a.yaml"), wrong("b.yaml")))
	if got := InvalidManifests(m.o.Dirs); len(got) != 2 || len(got[0].Problems) != 2 || got[1].File != "b.yaml" {
		t.Errorf("got %+v", got)
	}
	l.keepInvalid(nil)
	if got := InvalidManifests(m.o.Dirs); len(got) != 0 {
		t.Errorf("all are right: got %+v", got)
	}
	l.keepInvalid(errors.New("no such directory"))
	if got := InvalidManifests(m.o.Dirs); len(got) != 1 {
		t.Errorf("the directory: got %+v", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := InvalidManifests(m.o.Dirs); len(got) != 0 {
		t.Errorf("sync has ended: got %+v", got)
	}
}
