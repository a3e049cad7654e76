package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/test"
)

// tree returns the files below dir: path, kind and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, file)
		switch {
		case d.IsDir():
			all[rel] = "dir"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(file)
			all[rel] = "-> " + to
			return err
		default:
			content, err := os.ReadFile(file)
			all[rel] = string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(to, file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(file, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// open returns a directory for Pack and Unpack.
func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestRoundTrip(t *testing.T) {
	source := t.TempDir()
	write(t, source, map[string]string{"a": "1", "sub/b": "two", "sub/empty": "", "sub/link": "-> ../a"})
	cases := map[string]struct {
		name string
		o    Options
		want map[string]string
	}{
		"under another name": {
			"x", Options{Strip: true, Name: "y"},
			map[string]string{".": "dir", "y": "dir", "y/a": "1", "y/sub": "dir", "y/sub/b": "two", "y/sub/empty": "", "y/sub/link": "-> ../a"},
		},
		"contents under a name": {
			".", Options{Name: "y"},
			map[string]string{".": "dir", "y": "dir", "y/a": "1", "y/sub": "dir", "y/sub/b": "two", "y/sub/empty": "", "y/sub/link": "-> ../a"},
		},
		"contents only": {
			".", Options{},
			map[string]string{".": "dir", "a": "1", "sub": "dir", "sub/b": "two", "sub/empty": "", "sub/link": "-> ../a"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Pack(&b, open(t, source), ".", c.name, Options{}); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := Unpack(&b, open(t, dir), c.o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, tree(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRoundTripKeepsModeAndTime(t *testing.T) {
	from := t.TempDir()
	source := filepath.Join(from, "f")
	when := time.Unix(1_500_000_000, 0)
	if err := os.WriteFile(source, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(source, 0o753); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(source, when, when); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Pack(&b, open(t, from), "f", "f", Options{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Unpack(&b, open(t, dir), Options{Strip: true, Name: "g"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "g"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o753 || !info.ModTime().Equal(when) {
		t.Errorf("got %v, %v", info.Mode(), info.ModTime())
	}
}

func pack(t *testing.T, entries ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body = "evil"
			h.Size = int64(len(body))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestUnpackStaysInside: entries from a container touch nothing outside of the directory.
func TestUnpackStaysInside(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	cases := map[string][]tar.Header{
		"dots":                      {file("../evil")},
		"dots in the middle":        {file("a/../../evil")},
		"absolute":                  {file("/evil")},
		"through a link":            {link("d", "../outside"), file("d/evil")},
		"through an absolute link":  {link("d", "OUTSIDE"), file("d/evil")},
		"a file over a link":        {link("f", "../outside/precious"), file("f")},
		"a directory over a link":   {link("d", "../outside"), {Typeflag: tar.TypeDir, Name: "d"}, file("d/evil")},
		"hard link to the outside":  {{Typeflag: tar.TypeLink, Name: "h", Linkname: "../outside/precious"}, file("h")},
		"hard link through a link":  {link("d", "../outside"), {Typeflag: tar.TypeLink, Name: "h", Linkname: "d/precious"}},
		"a device":                  {{Typeflag: tar.TypeChar, Name: "null"}},
		"an empty name":             {file("")},
		"a file where the root is":  {file(".")},
		"replacing the root itself": {link(".", "../outside")},
	}
	for name, entries := range cases {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			write(t, base, map[string]string{"outside/precious": "gold", "inside/x": "x"})
			for i := range entries {
				if entries[i].Linkname == "OUTSIDE" {
					entries[i].Linkname = filepath.Join(base, "outside")
				}
			}
			err := Unpack(pack(t, entries...), open(t, filepath.Join(base, "inside")), Options{})
			got := tree(t, base)
			for file := range got {
				if strings.HasPrefix(file, "inside") {
					delete(got, file)
				}
			}
			want := map[string]string{".": "dir", "outside": "dir", "outside/precious": "gold"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unpacking ended with %v and left\n%s", err, diff)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add("a", "b")
	f.Add("../a", "/etc")
	f.Add("a/./../..", "..")
	f.Fuzz(func(t *testing.T, name, to string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []*tar.Header{
			{Typeflag: tar.TypeSymlink, Name: "l", Linkname: to},
			{Typeflag: tar.TypeReg, Name: name},
			{Typeflag: tar.TypeReg, Name: "l/" + name},
		} {
			if w.WriteHeader(h) != nil {
				return
			}
		}
		w.Close()
		base := t.TempDir()
		write(t, base, map[string]string{"inside/x": "x"})
		_ = Unpack(&b, open(t, filepath.Join(base, "inside")), Options{}) // any result is fine for an invalid archive
		entries, err := os.ReadDir(base)
		if err != nil || len(entries) != 1 {
			t.Errorf("%v next to the directory, %v", entries, err)
		}
	})
}

// TestUnpackReplacesNoDevice: a pipe stands for /dev/null, which root would remove for the whole machine.
func TestUnpackReplacesNoDevice(t *testing.T) {
	for name, entry := range map[string]tar.Header{
		"a file": {Typeflag: tar.TypeReg, Name: "pipe"},
		"a link": {Typeflag: tar.TypeSymlink, Name: "pipe", Linkname: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			pipe := filepath.Join(dir, "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			err := Unpack(pack(t, entry), open(t, dir), Options{})
			if err == nil || !strings.Contains(err.Error(), "is not replaced") {
				t.Errorf("got %v", err)
			}
			if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
				t.Errorf("the pipe is now %v, %v", info, err)
			}
		})
	}
}

// swapper changes the packed directory after the first write, as a process in the container could at any time.
type swapper struct {
	bytes.Buffer
	swap func()
}

func (s *swapper) Write(b []byte) (int, error) {
	if s.swap != nil {
		s.swap()
		s.swap = nil
	}
	return s.Buffer.Write(b)
}

// TestPackStaysInside: Pack stays below its directory while a container replaces parts of it.
func TestPackStaysInside(t *testing.T) {
	replace := func(t *testing.T, old, to string) {
		t.Helper()
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, old); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]func(t *testing.T, base string){
		"as it is":                          func(*testing.T, string) {},
		"a directory becomes a link":        func(t *testing.T, base string) { replace(t, base+"/inside/d", "../outside") },
		"a directory becomes absolute link": func(t *testing.T, base string) { replace(t, base+"/inside/d", base+"/outside") },
		"a file becomes a link":             func(t *testing.T, base string) { replace(t, base+"/inside/d/precious", "../../outside/precious") },
		"the directory itself moves": func(t *testing.T, base string) {
			if err := os.Rename(base+"/inside", base+"/moved"); err != nil {
				t.Fatal(err)
			}
			replace(t, base+"/inside", "outside")
		},
		"a file becomes a pipe": func(t *testing.T, base string) {
			if err := os.Remove(base + "/inside/d/precious"); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(base+"/inside/d/precious", 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			write(t, base, map[string]string{
				"outside/precious": "gold", "inside/d/a": "a", "inside/d/precious": "x", "inside/out": "-> ../outside", "inside/abs": "-> " + base + "/outside",
			})
			packed := &swapper{swap: func() { change(t, base) }}
			err := Pack(packed, open(t, base+"/inside"), ".", ".", Options{})
			if strings.Contains(packed.String(), "gold") {
				t.Errorf("the outside was packed; %v", err)
			}
		})
	}
}

// TestOpenReplaced replaces a file between its stat and its opening.
func TestOpenReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"f": "x", "link": "-> f"})
	p := &packer{root: open(t, dir)}
	for _, name := range []string{"pipe", "link", "."} {
		f, _, err := p.open(name, fs.FileMode.IsRegular)
		if err == nil {
			_ = f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "was replaced") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOwner(t *testing.T) {
	shift := func(uid, gid int) (int, int) { return uid + 1000, gid + 2000 }
	dir := t.TempDir()
	write(t, dir, map[string]string{"f": "x"})
	for name, want := range map[string]struct {
		owner    func(int, int) (int, int)
		uid, gid int
	}{
		"nobody asks": {nil, 0, 0},
		"kept":        {KeepOwner, os.Getuid(), os.Getgid()},
		"mapped":      {shift, os.Getuid() + 1000, os.Getgid() + 2000},
	} {
		var b bytes.Buffer
		if err := Pack(&b, open(t, dir), "f", "f", Options{Owner: want.owner}); err != nil {
			t.Fatal(err)
		}
		h, err := tar.NewReader(&b).Next()
		if err != nil || h.Uid != want.uid || h.Gid != want.gid {
			t.Errorf("%s: got %d:%d, %v", name, h.Uid, h.Gid, err)
		}
	}
}

// TestUnpackParents: directories that an archive leaves out get the owner of their files.
func TestUnpackParents(t *testing.T) {
	dir := t.TempDir()
	var owned int
	o := Options{Owner: func(int, int) (int, int) { owned++; return -1, -1 }, Where: "/there"}
	if err := Unpack(pack(t, tar.Header{Typeflag: tar.TypeReg, Name: "a/b/c"}), open(t, dir), o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{".": "dir", "a": "dir", "a/b": "dir", "a/b/c": "evil"}, tree(t, dir)); diff != "" || owned != 3 {
		t.Errorf("%d got an owner, %s", owned, diff)
	}
	err := Unpack(pack(t, tar.Header{Typeflag: tar.TypeReg, Name: "a/b/c/d"}), open(t, dir), o)
	if err == nil || !strings.HasPrefix(err.Error(), "/there/a/b/c") {
		t.Errorf("got %v", err)
	}
}

// unpackInto unpacks into a new directory, and gives up on an archive that keeps it busy.
func unpackInto(t *testing.T, r io.Reader) error {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	done := make(chan error, 1)
	go func() { done <- Unpack(r, root, Options{}) }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the archive takes too long")
		return nil
	}
}

// TestUnpackALongName: a path of very many directories fails at once.
func TestUnpackALongName(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("a/", 200<<10) + "a", Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unpackInto(t, &b); err == nil || !strings.Contains(err.Error(), "bytes") || len(err.Error()) > 500 {
		t.Errorf("got %v, want that the name is too long", err)
	}
}

// TestUnpackAHugeRecord: an extended header that claims a huge size fails without using the memory.
func TestUnpackAHugeRecord(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x", Size: 1 << 32, Mode: 0o600, Format: tar.FormatUSTAR}); err != nil {
		t.Fatal(err)
	}
	header := b.Bytes()[:512]
	header[156] = 'x' // an extended header
	copy(header[148:156], "        ")
	sum := 0
	for _, c := range header {
		sum += int(c)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := unpackInto(t, io.MultiReader(bytes.NewReader(header), endless{}))
	runtime.ReadMemStats(&after)
	if err == nil || after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("got %v with %d MiB", err, (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}

// endless is an endless stream of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestUnpackOneDirectoryAgainAndAgain: a directory is remembered once, without its extended records.
func TestUnpackOneDirectoryAgainAndAgain(t *testing.T) {
	r, w := io.Pipe()
	used := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	var before, after uint64
	go func() {
		before = used()
		entries := tar.NewWriter(w)
		var err error
		for i := 0; i < 150 && err == nil; i++ {
			err = entries.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%d/", i%3), Mode: 0o700, Format: tar.FormatPAX,
				PAXRecords: map[string]string{"CRISHIM.comment": strings.Repeat("x", 500<<10)},
			})
		}
		after = used()
		w.CloseWithError(errors.Join(err, entries.Close()))
	}()
	if err := unpackInto(t, r); err != nil {
		t.Fatal(err)
	}
	if after > before+16<<20 {
		t.Errorf("%d MiB are kept", (after-before)>>20)
	}
}

// TestUnpackLeavesHoles: a sparse file of a container stays sparse.
func TestUnpackLeavesHoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const size = 256 << 20
	if err := unpackStream(t, dir, Options{}, tar.Header{Name: "big", Typeflag: tar.TypeReg, Mode: 0o600, Size: size}, size, "end"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != size || used > 1<<20 {
		t.Errorf("got %d bytes, %d on disk; want %d and next to nothing", info.Size(), used, size)
	}
	f, err := os.Open(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	end := make([]byte, 4)
	if _, err := f.ReadAt(end, size-4); err != nil || string(end) != "\x00end" {
		t.Errorf("it ends with %q, %v", end, err)
	}
}

// TestUnpackLeavesNoHalfFile: an interrupted copy leaves the old file, and never an incomplete new file.
func TestUnpackLeavesNoHalfFile(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]map[string]string{"new": {}, "a file": {"half": "whole"}, "a link": {"half": "-> other", "other": "x"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, before)
			want := tree(t, dir)
			if err := unpackStream(t, dir, Options{}, tar.Header{Name: "half", Typeflag: tar.TypeReg, Mode: 0o600, Size: 1 << 20}, 1<<19, "end"); err == nil {
				t.Error("no error")
			}
			if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestUnpackReplaces: a file, a link and a hard link replace an existing file, and no other file stays.
func TestUnpackReplaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "old", "b": "old", "c": "old"})
	entries := []tar.Header{
		{Typeflag: tar.TypeReg, Name: "a"}, {Typeflag: tar.TypeSymlink, Name: "b", Linkname: "a"},
		{Typeflag: tar.TypeLink, Name: "c", Linkname: "a"}, {Typeflag: tar.TypeLink, Name: "c", Linkname: "a"},
	}
	if err := Unpack(pack(t, entries...), open(t, dir), Options{}); err != nil {
		t.Fatal(err)
	}
	got := tree(t, dir)
	if got["a"] == "old" || got["b"] != "-> a" || got["c"] != got["a"] || len(got) != 4 {
		t.Errorf("got %v", got)
	}
}

// TestUnpackLeavesRoomOnTheDisk: on a disk of 100 MiB a copy fails before the disk is full, and leaves the existing
// files.
func TestUnpackLeavesRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=100m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	write(t, dir, map[string]string{"big": "old"})
	const size = 100 << 20
	r, w := io.Pipe()
	go func() {
		entries := tar.NewWriter(w)
		_ = entries.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Mode: 0o600, Size: size})
		_, err := io.CopyN(entries, ones{}, size)
		w.CloseWithError(err)
	}()
	err := Unpack(r, open(t, dir), Options{})
	_ = r.Close()
	if err == nil || !strings.Contains(err.Error(), dir+"/big: less than 64 MiB are left on its disk") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(map[string]string{".": "dir", "big": "old"}, tree(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUnpackCountsEveryEntry: entries without content use disk space, too. This disk has less space than Unpack keeps
// free.
func TestUnpackCountsEveryEntry(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=60m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for name, h := range map[string]tar.Header{
		"files": {Typeflag: tar.TypeReg}, "directories": {Typeflag: tar.TypeDir}, "symbolic links": {Typeflag: tar.TypeSymlink, Linkname: "x"},
		"hard links": {Typeflag: tar.TypeLink, Linkname: "x"}, "directories above": {Typeflag: tar.TypeSymlink, Linkname: "x", Name: strings.Repeat("/a", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(dir, name)
			if err := os.Mkdir(at, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, at, map[string]string{"x": ""})
			r, w := io.Pipe()
			go func() {
				entries := tar.NewWriter(w)
				var err error
				for n := 0; n < 9000 && err == nil && (n < 90 || h.Name == ""); n++ {
					h := h
					h.Name = fmt.Sprint(n) + h.Name
					err = entries.WriteHeader(&h)
				}
				w.CloseWithError(err)
			}()
			err := Unpack(r, open(t, at), Options{})
			_ = r.Close()
			if err == nil || !strings.Contains(err.Error(), "less than 64 MiB are left on its disk") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestUnpackLeavesInodes: entries without content do not use up the inodes of the disk.
func TestUnpackLeavesInodes(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1g,nr_inodes=12k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	r, w := io.Pipe()
	go func() {
		entries := tar.NewWriter(w)
		var err error
		for n := 0; n < 20_000 && err == nil; n++ {
			err = entries.WriteHeader(&tar.Header{Name: fmt.Sprint(n), Typeflag: tar.TypeSymlink, Linkname: "x"})
		}
		w.CloseWithError(err)
	}()
	err := Unpack(r, open(t, dir), Options{})
	_ = r.Close()
	if err == nil || !strings.Contains(err.Error(), "less than 1000 files can still be made on its disk") {
		t.Errorf("got %v", err)
	}
}

// TestUnpackBoundsDirectories: the attributes of directories are in memory until the end.
func TestUnpackBoundsDirectories(t *testing.T) {
	t.Parallel()
	root := open(t, t.TempDir())
	u := &unpacker{root: root, seen: map[string]int{}, names: bounded.Budget{Left: 10 * perHeader, Of: "some directories"}}
	var err error
	for n := 0; n < 10 && err == nil; n++ {
		err = u.dir(&tar.Header{Typeflag: tar.TypeDir, Mode: 0o700}, fmt.Sprint(n))
	}
	if err == nil || !strings.Contains(err.Error(), "9: more than some directories") {
		t.Errorf("got %v", err)
	}
}

// ones is an endless stream without zeros.
type ones struct{}

func (ones) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 1
	}
	return len(b), nil
}

func TestUnpackNamesWhatItSkips(t *testing.T) {
	t.Parallel()
	for kind, want := range map[byte]string{tar.TypeFifo: "FIFO", tar.TypeChar: "character device", tar.TypeBlock: "block device"} {
		var got string
		o := Options{Skipped: func(name, why string) { got = name + " " + why }}
		if err := unpackStream(t, t.TempDir(), o, tar.Header{Name: "x", Typeflag: kind}, 0, ""); err != nil || !strings.HasPrefix(got, "x ") || !strings.Contains(got, want) {
			t.Errorf("%c: got %q, %v, want a %s", kind, got, err, want)
		}
	}
}

// unpackStream unpacks an entry of which n bytes arrive: zeros, and then end.
func unpackStream(t *testing.T, dir string, o Options, h tar.Header, n int64, end string) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r, w := io.Pipe()
	go func() {
		entries := tar.NewWriter(w)
		err := entries.WriteHeader(&h)
		zeros := make([]byte, 1<<16)
		for left := n - int64(len(end)); err == nil && left > 0; left -= int64(len(zeros)) {
			_, err = entries.Write(zeros[:min(int64(len(zeros)), left)])
		}
		if err == nil {
			_, err = io.WriteString(entries, end)
		}
		if err == nil {
			err = entries.Close() // fails if n is less than the header's size
		}
		w.CloseWithError(err)
	}()
	err = Unpack(r, root, o)
	_ = r.Close()
	return err
}
