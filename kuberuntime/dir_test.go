package kuberuntime

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// manifests is a directory with its own clock.
type manifests struct {
	*directory
	t  *testing.T
	at time.Time
}

func newManifests(t *testing.T) *manifests {
	t.Helper()
	m := &manifests{t: t, at: time.Now()}
	m.directory = &directory{path: t.TempDir(), settle: settleTime, now: func() time.Time { return m.at }}
	return m
}

func (m *manifests) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.path, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// pass reads the directory, advances the clock, and reads the directory again.
func (m *manifests) pass(d time.Duration) error {
	_, err := m.read()
	m.at = m.at.Add(d)
	if d > 0 {
		_, err = m.read()
	}
	return err
}

// names returns the names of the wanted pods.
func (m *manifests) names() string {
	var names []string
	for _, d := range m.pods {
		names = append(names, d.pod.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (m *manifests) wants(names string, dropped ...string) {
	m.t.Helper()
	var got []string
	for _, file := range []string{"a.yaml", "b.yaml", "c.yaml"} {
		if m.dropped(file) {
			got = append(got, file)
		}
	}
	if m.names() != names || !slices.Equal(got, dropped) {
		m.t.Errorf("got pods %q, dropped %v, want %q, %v", m.names(), got, names, dropped)
	}
}

// TestFilesSettle: a file is read after it has not changed for the settle time. A file without a document is a problem
// of that file.
func TestFilesSettle(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	a, b := staticPod("a", "busybox:1"), staticPod("b", "busybox:1")
	m.write("a.yaml", a)
	m.write("b.yaml", b)
	if err := m.pass(time.Second); err != nil {
		t.Fatal(err)
	}
	m.wants("")
	if err := m.pass(settleTime); err != nil {
		t.Fatal(err)
	}
	m.wants("a b", "a.yaml", "b.yaml", "c.yaml")
	uids := slices.Sorted(maps.Keys(m.pods))

	for _, text := range []string{"", "# nothing\n", "---", "--- # x\n", "---\n---\n", "---\n# Source: web.yaml\n", a[:30], a[:len(a)-10]} { // generate > a.yaml, in pieces
		m.write("a.yaml", text)
		_ = m.pass(time.Second)
		m.wants("a b")
		err := m.pass(settleTime)
		if err == nil || !strings.Contains(err.Error(), filepath.Join(m.path, "a.yaml")+":") {
			t.Errorf("%q: got %v, want a problem of the file", text, err)
		}
		m.wants("a b", "b.yaml", "c.yaml")
	}
	m.write("a.yaml", a)
	if err := m.pass(settleTime); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(uids, slices.Sorted(maps.Keys(m.pods))); diff != "" {
		t.Errorf("other pods than before: %s", diff)
	}

	// A rename with a pause: the pod stays wanted, or nothing is removed.
	if err := os.Rename(filepath.Join(m.path, "a.yaml"), filepath.Join(m.path, "a.tmp")); err != nil {
		t.Fatal(err)
	}
	_ = m.pass(settleTime - time.Second)
	m.wants("a b")
	m.write("c.yaml", a)
	_ = m.pass(settleTime - time.Second)
	m.wants("b") // a.yaml is gone, c.yaml may be half written
	if err := m.pass(settleTime); err != nil {
		t.Fatal(err)
	}
	m.wants("a b", "a.yaml", "b.yaml", "c.yaml")
}

// TestChangesThatKeepSizeAndTime: changes are noticed despite equal times, as in reproducible archives, OSTree and
// rsync -t.
func TestChangesThatKeepSizeAndTime(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	path, old := filepath.Join(m.path, "a.yaml"), time.Unix(1, 0)
	replace := func(text string) {
		m.write("new", text)
		tmp := filepath.Join(m.path, "new")
		if err := os.Chtimes(tmp, old, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, path); err != nil {
			t.Fatal(err)
		}
		_ = m.pass(settleTime)
	}
	replace(staticPod("a", "busybox:1"))
	m.wants("a", "a.yaml", "b.yaml", "c.yaml")
	replace(staticPod("b", "busybox:1"))
	m.wants("b", "a.yaml", "b.yaml", "c.yaml")
	m.write("a.yaml", staticPod("c", "busybox:1")) // overwritten in place
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	_ = m.pass(settleTime)
	m.wants("c", "a.yaml", "b.yaml", "c.yaml")
}

// TestDirectoryThatGoes: no pod ends because the directory cannot be listed or its file system was unmounted.
func TestDirectoryThatGoes(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	m.write("a.yaml", staticPod("a", "busybox:1"))
	_ = m.pass(settleTime)
	aside := m.path + ".aside"
	if err := os.Rename(m.path, aside); err != nil {
		t.Fatal(err)
	}
	if err := m.pass(time.Hour); err == nil {
		t.Error("a missing directory was read")
	}
	m.wants("a")
	if err := os.Mkdir(m.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.pass(time.Hour); err == nil || !strings.Contains(err.Error(), "unmounted") {
		t.Errorf("another empty directory: got %v", err)
	}
	m.wants("a")
	if err := os.Remove(m.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, m.path); err != nil {
		t.Fatal(err)
	}
	if err := m.pass(0); err != nil {
		t.Error(err)
	}
	m.wants("a", "a.yaml", "b.yaml", "c.yaml")
	if err := os.Remove(filepath.Join(m.path, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	_ = m.pass(settleTime)
	m.wants("", "a.yaml", "b.yaml", "c.yaml")
}

// TestDirectoryThatCannotBeRead: a new sync ends no pod and says why none starts.
func TestDirectoryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	m.path = filepath.Join(m.path, "loop") // root may read everything else
	if err := os.Symlink(m.path, m.path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := m.pass(time.Hour)
		if want := "no pod is started or removed until the manifests of " + m.path + " can be read: "; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		m.wants("")
		if m.complete() {
			t.Error("pods count as garbage")
		}
	}
}

// TestDirectoryBehindALink: a link to a directory is resolved at each pass, and keeps its name.
func TestDirectoryBehindALink(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	base := m.path
	for name, pods := range map[string]string{"v1": "a b", "v2": "b c"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
		for p := range strings.FieldsSeq(pods) {
			m.write(filepath.Join(name, p+".yaml"), staticPod(p, "busybox:1"))
		}
	}
	m.path = filepath.Join(base, "current")
	link := func(to string) {
		tmp := filepath.Join(base, "tmp")
		if err := os.Symlink(to, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, m.path); err != nil {
			t.Fatal(err)
		}
	}
	link("v1")
	_ = m.pass(settleTime)
	m.wants("a b", "a.yaml", "b.yaml", "c.yaml")
	var b string
	for uid, d := range m.pods {
		if d.pod.Name == "b" {
			b = uid
		}
	}
	link("v2")
	_ = m.pass(time.Second)
	m.wants("a b")
	_ = m.pass(settleTime)
	m.wants("b c", "a.yaml", "b.yaml", "c.yaml")
	if _, same := m.pods[b]; !same {
		t.Error("a pod that both have is another one")
	}
}

// TestBrokenFilesOnly: a broken file only affects its own pods, which keep their last valid content. Each problem is an
// error.
func TestBrokenFilesOnly(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	a := staticPod("a", "busybox:1")
	m.write("a.yaml", a)
	m.write("b.yaml", staticPod("b", "busybox:1"))
	m.write("config.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}")
	_ = m.pass(settleTime)
	m.write("a.yaml", "kind: Pod\napiVersion: v1\nspecs: {}\nstatuss: {}\n")
	m.write("config.yaml", "")
	if err := os.Remove(filepath.Join(m.path, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	err := m.pass(settleTime)
	m.wants("a", "b.yaml", "c.yaml")
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("got %v, want three problems", err)
	}
	for _, problem := range joined.Unwrap() {
		if of, ok := errors.AsType[*manifest.Error](problem); !ok || filepath.Dir(of.File) != m.path {
			t.Errorf("the problem names no file: %v", problem)
		}
	}
	for _, d := range m.pods {
		if d.set.ConfigMaps["default/c"] == nil {
			t.Error("the ConfigMap is lost")
		}
	}
	if m.dropped("") {
		t.Error("a pod of an unknown file would go")
	}
	m.write("0.yaml", strings.Replace(a, "a}", "a, labels: {x: z}}", 1)) // replaces the pod
	m.write("config.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
	_ = m.pass(settleTime)
	m.wants("a", "b.yaml", "c.yaml")
	for _, d := range m.pods {
		if d.pod.Labels["x"] != "z" {
			t.Error("the older of two pods of one name is wanted")
		}
	}

	// A new process does not know the last valid content.
	again := newManifests(t)
	again.path = m.path
	_ = again.pass(settleTime)
	again.wants("a", "b.yaml", "c.yaml")
}

// TestOriginThatCannotBeRead: without the identity an unmounted directory would be taken for an empty one.
func TestOriginThatCannotBeRead(t *testing.T) {
	t.Parallel()
	m, dirs := newManifests(t), pod.Dirs{Root: t.TempDir()}
	start := func() (*Loop, error) {
		return (&Manager{o: Options{Dirs: dirs}}).NewLoop(LoopOptions{Dir: m.path})
	}
	l, err := start()
	if err != nil {
		t.Fatal(err)
	}
	l.keepOrigin()
	file := originFile(dirLockPath(dirs, l.directory.path))
	if err := errors.Join(l.Close(), os.WriteFile(file, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the lock is free again
		if _, err := start(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("got %v", err)
		}
	}
}

// TestRestartWithoutTheMount: the pods stay, because the empty directory is not the manifest directory.
func TestRestartWithoutTheMount(t *testing.T) {
	t.Parallel()
	m := newManifests(t)
	dirs := pod.Dirs{Root: t.TempDir()}
	start := func() *Loop {
		t.Helper()
		l, err := (&Manager{o: Options{Dirs: dirs}}).NewLoop(LoopOptions{Dir: m.path})
		if err != nil {
			t.Fatal(err)
		}
		l.directory.now, m.directory = m.now, l.directory
		return l
	}
	stop := func(l *Loop) {
		t.Helper()
		l.keepOrigin()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := start()
	_ = m.pass(time.Second)
	m.wants("") // the file system may still be mounted
	m.write("a.yaml", staticPod("a", "busybox:1"))
	_ = m.pass(settleTime)
	m.wants("a", "a.yaml", "b.yaml", "c.yaml")
	stop(l)

	mounted := m.path + ".mounted"
	if err := os.Rename(m.path, mounted); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.path, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l = start()
		if err := m.pass(time.Hour); err == nil || !strings.Contains(err.Error(), "unmounted") {
			t.Errorf("another empty directory after a restart: got %v", err)
		}
		m.wants("")
		stop(l)
	}

	if err := os.Remove(m.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(mounted, m.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(m.path, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	l = start()
	_ = m.pass(settleTime)
	m.wants("", "a.yaml", "b.yaml", "c.yaml") // the manifest is removed from the same directory
	stop(l)
	if err := os.Rename(m.path, mounted); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.path, 0o700); err != nil {
		t.Fatal(err)
	}
	l = start()
	if err := m.pass(settleTime); err != nil {
		t.Errorf("nothing is left to keep: %v", err)
	}
	stop(l)
}

// TestLinkSwitchedWhileNoSyncRuns: the next process removes the pods that only the old target of the link has.
func TestLinkSwitchedWhileNoSyncRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	base := t.TempDir()
	for file, name := range map[string]string{"v1/a": "a", "v1/b": "b", "v2/b": "b", "v2/c": "c"} {
		path := filepath.Join(base, file+".yaml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(staticPod(name, "busybox:1")), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(base, "current")
	pods := func(target string) (names []string, b string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
		f = f.next(t)
		l, err := f.NewLoop(LoopOptions{Dir: link})
		if err != nil {
			t.Fatal(err)
		}
		start, polls := time.Now(), 0
		l.directory.now = func() time.Time { polls++; return start.Add(time.Duration(polls) * settleTime) }
		if err := errors.Join(l.RunOnce(deadline(t), Wait{}), l.Close()); err != nil {
			t.Fatal(err)
		}
		listed, err := f.GetPods(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range listed {
			names = append(names, p.Name)
			if p.Name == "b" {
				b = p.UID
			}
		}
		return names, b
	}
	before, b := pods("v1")
	after, same := pods("v2")
	if diff := cmp.Diff([][]string{{"a", "b"}, {"b", "c"}}, [][]string{before, after}); diff != "" || b != same {
		t.Errorf("pods before and after, b is %s and %s: %s", b, same, diff)
	}
}
