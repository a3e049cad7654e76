package glob

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestEscape(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{`a*b`, `a?b`, `a[b]`, `a\b`, `axb`, `ab`} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := filepath.Glob(Escape(path)); err != nil || !slices.Equal(got, []string{path}) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
