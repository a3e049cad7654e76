package bounded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// swapping is a context that calls do at the nth call of a method.
type swapping struct {
	context.Context
	left int
	do   func()
}

func (s *swapping) Err() error {
	if s.left--; s.left == 0 {
		s.do()
	}
	return nil
}

// TestWalkFollowsNoLink replaces a directory by a link between the stat and the open.
func TestWalkFollowsNoLink(t *testing.T) {
	t.Parallel()
	for n := 1; n < 8; n++ {
		layer, outside := t.TempDir(), t.TempDir()
		if err := os.Mkdir(filepath.Join(layer, "a"), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(outside, fmt.Sprint(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx := &swapping{Context: t.Context(), left: n, do: func() {
			a := filepath.Join(layer, "a")
			if err := errors.Join(os.Remove(a), os.Symlink(outside, a)); err != nil {
				t.Error(err)
			}
		}}
		if size, err := Walk(ctx, layer, 0); err != nil || size.Files > 2 {
			t.Errorf("swapped at %d: got %d inodes, %v; want 2", n, size.Files, err)
		}
	}
}

// TestWalkOfALargeDirectory walks a directory that is read in several parts and has hard links.
func TestWalkOfALargeDirectory(t *testing.T) {
	t.Parallel()
	layer := t.TempDir()
	dir := filepath.Join(layer, "a/b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 600 {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Link(name, name+"-too")); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := Walk(t.Context(), layer, 0); err != nil || size.Files != 603 {
		t.Errorf("got %d inodes, %v", size.Files, err)
	}
}

func TestWalkHasALimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := Walk(t.Context(), dir, 3); err != nil || sum.Files != 3 || !sum.More {
		t.Errorf("got %+v, %v; want three files, and that there are more", sum, err)
	}
	if sum, err := Walk(t.Context(), dir, 5); err != nil || sum.Files != 5 || sum.More || sum.Bytes < 4*4096 {
		t.Errorf("got %+v, %v; want all", sum, err)
	}
}
