package logfile

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/crishim/crishim/internal/test"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// cri returns a CRI log line, written second seconds after start.
func cri(second int, stream, tag, text string) string {
	return fmt.Sprintf("%s %s %s %s\n", start.Add(time.Duration(second)*time.Second).Format(time.RFC3339Nano), stream, tag, text)
}

func docker(second int, stream, text string) string {
	quoted, _ := json.Marshal(text) // cannot fail for a string
	return fmt.Sprintf(`{"log":%s,"stream":%q,"time":%q}`+"\n", quoted, stream, start.Add(time.Duration(second)*time.Second).Format(time.RFC3339Nano))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if strings.HasSuffix(path, ".gz") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
		text = b.String()
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// collect reads a log and returns each entry as o:TEXT or e:TEXT.
func collect(t *testing.T, path string, o Options) []string {
	t.Helper()
	var got []string
	err := Read(context.Background(), path, o, func(e Entry) error {
		got = append(got, e.Stream[3:4]+":"+string(e.Text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.log")
	write(t, path, cri(10, "stdout", "F", "ten")+cri(11, "stderr", "F", "eleven")+cri(12, "stdout", "P", "twe")+
		"rubbish\n"+cri(12, "stdout", "F", "lve")+cri(13, "stdout", "F", "")+"2026-01-02T03:04:18Z stdout F no end")
	ten, eleven, twe, lve, empty := "o:ten\n", "e:eleven\n", "o:twe", "o:lve\n", "o:\n"
	for _, test := range []struct {
		name string
		o    Options
		want []string
	}{
		{"all", Options{Tail: -1}, []string{ten, "e:eleven\n", twe, lve, empty}},
		{"stdout", Options{Tail: -1, Stream: Stdout}, []string{ten, twe, lve, empty}},
		{"stderr", Options{Tail: -1, Stream: Stderr}, []string{eleven}},
		{"none", Options{Tail: 0}, nil},
		{"the last", Options{Tail: 1}, []string{empty}},
		{"two, one in parts", Options{Tail: 2}, []string{twe, lve, empty}},
		{"more than there are", Options{Tail: 99}, []string{ten, eleven, twe, lve, empty}},
		{"the last of stderr", Options{Tail: 1, Stream: Stderr}, []string{eleven}},
		{"since", Options{Tail: -1, Since: start.Add(12 * time.Second)}, []string{twe, lve, empty}},
		{"until", Options{Tail: -1, Until: start.Add(11 * time.Second)}, []string{ten, eleven}},
		{"the last until", Options{Tail: 1, Until: start.Add(11 * time.Second)}, []string{eleven}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.o.Ended = func(context.Context) (bool, error) { return false, nil }
			if diff := cmp.Diff(test.want, collect(t, path, test.o)); diff != "" {
				t.Errorf("entries differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadDocker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x-json.log")
	write(t, path, docker(1, "stdout", "a < b & c\n")+docker(2, "stderr", "part")+docker(2, "stderr", " whole\n"))
	want := []string{"o:a < b & c\n", "e:part", "e: whole\n"}
	if diff := cmp.Diff(want, collect(t, path, Options{Tail: -1})); diff != "" {
		t.Errorf("entries differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], collect(t, path, Options{Tail: 1})); diff != "" {
		t.Errorf("last line differs (-want +got):\n%s", diff)
	}
}

func TestRotatedFilesComeFirst(t *testing.T) {
	for name, suffixes := range map[string][]string{
		"numbered as Docker does": {".10", ".2.gz", ".1"},
		"dated as a kubelet does": {".20260101-000000.gz", ".20260102-000000.gz", ".20260103-000000"},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.Repeat("0123456789abcdef", 4) // target of a dockershim's link in the engine's directory
			dir := filepath.Join(t.TempDir(), id)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, id+"-json.log")
			var want []string
			for i, suffix := range append(suffixes, "") {
				write(t, path+suffix, cri(i, "stdout", "F", suffix))
				want = append(want, "o:"+suffix+"\n")
			}
			write(t, path+".bak", cri(0, "stdout", "F", "not a rotation"))
			write(t, path+".tmp.gz", "not even gzip")
			if diff := cmp.Diff(want, collect(t, path, Options{Tail: -1})); diff != "" {
				t.Errorf("entries differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want[2:], collect(t, path, Options{Tail: 2})); diff != "" {
				t.Errorf("the last two differ (-want +got):\n%s", diff)
			}
			link := filepath.Join(t.TempDir(), "link.log")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, collect(t, link, Options{Tail: -1})); diff != "" {
				t.Errorf("entries behind a link differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompressedAndNotYetRemovedIsReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.log")
	write(t, path, "")
	write(t, path+".20260101-000000", cri(1, "stdout", "F", "once"))
	write(t, path+".20260101-000000.gz", cri(1, "stdout", "F", "once"))
	if diff := cmp.Diff([]string{"o:once\n"}, collect(t, path, Options{Tail: -1})); diff != "" {
		t.Errorf("entries differ (-want +got):\n%s", diff)
	}
}

func TestTailOfManyBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.log")
	var text strings.Builder
	var want []string
	for i := range 5000 {
		line := strings.Repeat("x", 40) + fmt.Sprint(i)
		text.WriteString(cri(i, "stdout", "F", line))
		want = append(want, "o:"+line+"\n")
	}
	write(t, path, text.String())
	for _, n := range []int{1, 3000, 4999, 5000, 6000} {
		if diff := cmp.Diff(want[max(0, 5000-n):], collect(t, path, Options{Tail: n})); diff != "" {
			t.Errorf("the last %d differ (-want +got):\n%s", n, diff)
		}
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.log")
	write(t, path, cri(1, "stdout", "F", "one")+"2026-01-02T03:04:07Z stdout F t")
	steps := []func(){
		func() { appendTo(t, path, "wo\n") },
		func() { // late lines still go to the old file
			appendTo(t, path, cri(3, "stdout", "F", "three"))
			if err := os.Rename(path, path+".20260103-000000"); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			appendTo(t, path+".20260103-000000", cri(4, "stdout", "F", "four"))
			write(t, path, cri(5, "stdout", "F", "five"))
		},
		func() { // containerd creates the new file before it switches
			appendTo(t, path+".20260103-000000", cri(4, "stdout", "F", "late"))
		},
		func() { write(t, path, cri(6, "stdout", "F", "six")[:10]) }, // truncated
		func() { write(t, path, cri(6, "stdout", "F", "six")) },
		func() {},
	}
	o := Options{Tail: -1, Follow: true, Poll: time.Millisecond}
	o.Ended = func(context.Context) (bool, error) {
		step := steps[0]
		steps = steps[1:]
		step()
		return len(steps) == 0, nil
	}
	want := []string{"o:one\n", "o:two\n", "o:three\n", "o:four\n", "o:late\n", "o:five\n", "o:six\n"}
	if diff := cmp.Diff(want, collect(t, path, o)); diff != "" {
		t.Errorf("entries differ (-want +got):\n%s", diff)
	}
}

// TestFollowOfManyRotations checks that files are read even if they are rotated away before the follower opens them, or
// if they appear last before the end.
func TestFollowOfManyRotations(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, cri(1, "stdout", "F", "one"))
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{path: path, file: file, buf: make([]byte, 1<<10)}
	defer func() { f.file.Close() }()
	rotate := func(n int, text string) {
		if err := os.Rename(path, fmt.Sprint(path, ".", n)); err != nil {
			t.Fatal(err)
		}
		write(t, path, cri(n, "stdout", "F", text))
	}
	var got []string
	catchUp := func(tick, ended bool) {
		got = append(got, "-")
		if err := f.catchUp(t.Context(), tick, ended, func(e Entry) error { got = append(got, string(e.Text)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	rotate(1, "two")
	catchUp(true, false)
	catchUp(false, false)
	rotate(2, "three")
	catchUp(false, false)
	rotate(3, "four")
	catchUp(true, true)
	want := []string{"-", "one\n", "-", "-", "two\n", "-", "three\n", "four\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries differ (-want +got):\n%s", diff)
	}
}

// TestFollowIsToldOfChanges checks that new lines are seen before the next poll, also from a writer that still has the
// rotated file open.
func TestFollowIsToldOfChanges(t *testing.T) {
	t.Parallel()
	if w := watch(t.TempDir() + "/x"); w == nil {
		test.Missing(t, "no inotify")
	} else if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("0123456789abcdef", 4)
	dir := filepath.Join(t.TempDir(), id)
	plain, link := filepath.Join(t.TempDir(), "0.log"), filepath.Join(t.TempDir(), "0.log")
	engines := filepath.Join(dir, id+"-json.log")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(engines, link)); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]struct{ path, log string }{"plain": {plain, plain}, "behind a link": {link, engines}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			write(t, file.log, cri(1, "stdout", "F", "one"))
			steps := map[string]func(){
				"one\n": func() { appendTo(t, file.log, cri(2, "stdout", "F", "two")) },
				"two\n": func() {
					if err := os.Rename(file.log, file.log+".1"); err != nil {
						t.Error(err)
					}
					appendTo(t, file.log+".1", cri(3, "stdout", "F", "three"))
					write(t, file.log, cri(5, "stdout", "F", "five"))
				},
				"three\n": func() {},
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			asked := false
			o := Options{Tail: -1, Follow: true, Poll: time.Hour, Ended: func(context.Context) (bool, error) {
				asked = true
				old, err := os.OpenFile(file.log+".1", os.O_APPEND|os.O_WRONLY, 0)
				go func() {
					old.WriteString(cri(4, "stdout", "F", "four"))
					old.Close()
				}()
				return false, err
			}}
			err := Read(ctx, file.path, o, func(e Entry) error {
				step := steps[string(e.Text)]
				if step == nil {
					return errors.New(string(e.Text))
				}
				step()
				return nil
			})
			if err == nil || err.Error() != "four\n" || !asked {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestFollowWithoutInotify checks that polling works if the user has no inotify instances left.
func TestFollowWithoutInotify(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, "")
	none := func(...string) *fsnotify.Watcher { return nil }
	var got []string
	o := Options{Tail: -1, Follow: true, Poll: time.Millisecond, Ended: func(context.Context) (bool, error) {
		appendTo(t, path, cri(1, "stdout", "F", "one"))
		return len(got) > 0, nil
	}}
	err := read(t.Context(), path, o, none, func(e Entry) error { got = append(got, string(e.Text)); return nil })
	if diff := cmp.Diff([]string{"one\n", "one\n"}, got); diff != "" || err != nil {
		t.Errorf("%v, entries differ (-want +got):\n%s", err, diff)
	}
}

// TestRotatedWhileItIsRead checks that a file that is rotated after it was opened is read once.
func TestRotatedWhileItIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, cri(1, "stdout", "F", "one"))
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	f := &followed{path: path, file: file, buf: make([]byte, 1<<10)}
	n := 0
	if err := f.history(t.Context(), Options{}, func(Entry) error { n++; return nil }); n != 1 || err != nil {
		t.Errorf("got %d entries, %v", n, err)
	}
}

// TestTailUntilFails checks that an output error for lines before --until is returned.
func TestTailUntilFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, cri(1, "stdout", "F", "one")+cri(3, "stdout", "F", "three"))
	full := errors.New("no space left on device")
	err := Read(t.Context(), path, Options{Tail: 1, Until: start.Add(2 * time.Second)}, func(Entry) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	var text strings.Builder
	for i := range 1000 {
		text.WriteString(cri(i, "stdout", "F", fmt.Sprint("line ", i)))
	}
	write(t, path, text.String()+docker(1, "stderr", "the end\n"))
	long := filepath.Join(t.TempDir(), "0.log")
	write(t, long, cri(1, "stdout", "F", "before")+cri(1, "stdout", "F", strings.Repeat("x", 100))+"2026-01-02T03:04:18Z std")
	longer := filepath.Join(t.TempDir(), "0.log") // longer than the part that is read for this limit
	write(t, longer, cri(1, "stdout", "F", strings.Repeat("y", 14000)+"z"))
	escaped := filepath.Join(t.TempDir(), "0.log") // JSON escapes each byte to six
	write(t, escaped, docker(1, "stdout", strings.Repeat("\x00", 16<<10))+docker(1, "stdout", strings.Repeat("\x01", 16<<10)))
	wide := filepath.Join(t.TempDir(), "0.log")
	write(t, wide, cri(1, "stdout", "F", strings.Repeat("é", 100)))
	binary := filepath.Join(t.TempDir(), "0.log")
	write(t, binary, cri(1, "stdout", "F", strings.Repeat("\x80", 100)))
	for _, c := range []struct {
		path     string
		n, limit int
		want     []string
	}{
		{path, 2, 100, []string{"line 999", "the end"}},
		{path, 5, 16, []string{"line 999", "the end"}},
		{path, 5, 15, []string{"the end"}},
		{long, 5, 10, []string{strings.Repeat("x", 10)}},
		{longer, 5, 10, []string{strings.Repeat("y", 9) + "z"}},
		{escaped, 5, 10, []string{strings.Repeat("\x01", 10)}},
		{wide, 5, 11, []string{strings.Repeat("é", 5)}},
		{binary, 5, 11, []string{strings.Repeat("\x80", 8)}},
		{long, 0, 10, nil},
		{filepath.Dir(path), 5, 10, nil},
	} {
		if diff := cmp.Diff(c.want, LastLines(c.path, c.n, c.limit), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%d lines of %d bytes (-want +got):\n%s", c.n, c.limit, diff)
		}
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.log")
	write(t, path, "")
	ctx, cancel := context.WithCancel(context.Background())
	o := Options{Tail: -1, Follow: true, Ended: func(context.Context) (bool, error) { cancel(); return false, nil }}
	if err := Read(ctx, path, o, func(Entry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the context's", err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:07Z stdout F text"))
	f.Add([]byte(`{"log":"x\n","stream":"stdout","time":"2026-01-02T03:04:07Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if entry, err := parse(line); err == nil && entry.Time.IsZero() && line[0] != '{' {
			t.Errorf("no time in %q", line)
		}
	})
}

// TestDamagedLogs checks logs after a crash: lines that start with NUL bytes, are invalid or lack their newline. Valid
// records are shown and damaged lines are counted.
func TestDamagedLogs(t *testing.T) {
	t.Parallel()
	const cri, at = "2026-01-02T03:04:05Z stdout F ", "2026-01-02T03:04:05Z"
	docker := func(text string) string { return `{"log":"` + text + `\n","stream":"stdout","time":"` + at + `"}` }
	zeros := strings.Repeat("\x00", 5000)
	running := func(context.Context) (bool, error) { return false, nil }
	for name, c := range map[string]struct {
		rotated, text string
		ended         func(context.Context) (bool, error)
		want          string
		damaged       int
	}{
		"zeros before a record":           {"", docker("1") + "\n" + zeros + docker("2") + "\n" + docker("3") + "\n", nil, "1\n2\n3\n", 1},
		"more zeros than a line may have": {"", strings.Repeat(zeros, 1000) + docker("1") + "\n", nil, "1\n", 1},
		"zeros at the end":                {"", cri + "1\n" + zeros, nil, "1\n", 0},
		"zeros, then a last line":         {"", cri + "1\n" + zeros + cri + "2", nil, "1\n2\n", 1},
		"no newline":                      {"", cri + "1\n" + cri + "2", nil, "1\n2\n", 0},
		"no newline yet":                  {"", cri + "1\n" + cri + "2", running, "1\n", 0},
		"no newline in a rotated file":    {cri + "1\n" + cri + "2", cri + "3\n", running, "1\n2\n3\n", 0},
		"no records":                      {"what\n" + cri + "1\n", "{\n" + cri + "2\n20", nil, "1\n2\n", 3},
		"a record in two files":           {at + " stdout P ab\n", cri + "cd\n", nil, "abcd\n", 0},
	} {
		for _, tail := range []int{-1, 10} {
			path := filepath.Join(t.TempDir(), "0.log")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.rotated != "" {
				if err := os.WriteFile(path+".20260102-030405", []byte(c.rotated), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var got strings.Builder
			damaged := 0
			err := Read(t.Context(), path, Options{Tail: tail, Ended: c.ended, Damaged: &damaged}, func(e Entry) error {
				got.Write(e.Text)
				return nil
			})
			if err != nil || got.String() != c.want || damaged != c.damaged {
				t.Errorf("%s, tail %d: got %q, %d damaged, %v; want %q, %d", name, tail, got.String(), damaged, err, c.want, c.damaged)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(cri+"1\n"+cri+"2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := LastLines(path, 1, 100); !slices.Equal(got, []string{"2"}) {
		t.Errorf("last lines: got %q", got)
	}
	var got strings.Builder
	if err := Read(t.Context(), path, Options{Tail: 1}, func(e Entry) error { got.Write(e.Text); return nil }); err != nil || got.String() != "2\n" {
		t.Errorf("tail: got %q, %v", got.String(), err)
	}
}
