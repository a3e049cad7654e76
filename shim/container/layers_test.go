package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
)

// tree creates the layers of an image, topmost first: a name ending in "/" is a directory, "-name" a whiteout, "!name"
// an opaque directory.
func tree(t *testing.T, layers ...[]string) []string {
	t.Helper()
	var dirs []string
	for _, names := range layers {
		dir := t.TempDir()
		for _, name := range names {
			grow(t, dir, name)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

func grow(t *testing.T, dir, name string) {
	t.Helper()
	kind, path := name[0], filepath.Join(dir, strings.TrimLeft(name, "-!"))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	switch {
	case kind == '-':
		err = unix.Mknod(path, unix.S_IFCHR, 0)
	case kind == '!':
		if err = os.MkdirAll(path, 0o755); err == nil {
			err = errors.Join(unix.Setxattr(path, "trusted.overlay.opaque", []byte("y"), 0))
		}
	case strings.HasSuffix(name, "/"):
		err = os.MkdirAll(path, 0o755)
	default:
		err = os.WriteFile(path, []byte(filepath.Base(dir)), 0o600)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) {
		test.Missing(t, "this needs the rights of an engine: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSubLayers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		layers [][]string
		want   []int // layers that are used; nil for an error
	}{
		"in one of two":             {[][]string{{"x"}, {"a/b/"}}, []int{1}},
		"in both":                   {[][]string{{"a/b/f"}, {"a/b/g"}}, []int{0, 1}},
		"hidden by a whiteout":      {[][]string{{"-a/b"}, {"a/b/g"}}, nil},
		"its parent is hidden":      {[][]string{{"-a"}, {"a/b/g"}}, nil},
		"opaque":                    {[][]string{{"!a/b"}, {"a/b/g"}}, []int{0}},
		"below an opaque parent":    {[][]string{{"!a", "a/b/"}, {"a/b/g"}}, []int{0}},
		"an opaque parent lacks it": {[][]string{{"!a"}, {"a/b/g"}}, nil},
		"a file":                    {[][]string{{"a/b"}}, nil},
		"nowhere":                   {[][]string{{"a/"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dirs := tree(t, tc.layers...)
			got, err := subLayers(dirs, "a/b")
			if tc.want == nil {
				if !errdefs.IsInvalidArgument(err) {
					t.Errorf("got %q, %v; want invalid argument", got, err)
				}
				return
			}
			var want []string
			for _, i := range tc.want {
				want = append(want, filepath.Join(dirs[i], "a/b"))
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := subLayers([]string{"/no/such/layer"}, "a"); err == nil || errdefs.IsInvalidArgument(err) {
		t.Errorf("layers elsewhere: got %v", err)
	}
}

// TestReadLayersStaysInside checks that a link in an image does not lead to the host.
func TestReadLayersStaysInside(t *testing.T) {
	t.Parallel()
	dirs := tree(t, []string{"etc/"})
	if err := os.Symlink("/etc/passwd", filepath.Join(dirs[0], "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	if got, err := readLayers(dirs, "etc/passwd"); err == nil {
		t.Errorf("got %q, %v; want a refusal", got, err)
	}
	dirs = tree(t, []string{"x"}, []string{"etc/passwd"})
	if got, err := readLayers(dirs, "etc/passwd"); err != nil || string(got) != filepath.Base(dirs[1]) {
		t.Errorf("got %q, %v; want the lower layer's", got, err)
	}
	if got, err := readLayers(dirs, "etc/group"); err != nil || got != nil {
		t.Errorf("no such file: got %q, %v", got, err)
	}
}
