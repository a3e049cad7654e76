package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPublishedManifests applies manifests of the shape that projects publish, and compares the warnings with the first
// lines of each file. A line "# args:" has the flags.
func TestPublishedManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "published", "*.yaml"))
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d manifests, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := podTest(t)
			args, want := []string{"apply", "--dry-run", "-f", file}, ""
			for line := range strings.Lines(string(text)) {
				if flags, ok := strings.CutPrefix(line, "# args: "); ok {
					args = append(args, strings.Fields(flags)...)
				}
				if warning, ok := strings.CutPrefix(line, "# warning: "); ok {
					want += "crishim: warning: " + strings.ReplaceAll(warning, "$ROOT", c.vars["CRISHIM_ROOT"])
				}
			}
			got := c.run(args...)
			if diff := cmp.Diff(want, got.err); diff != "" || got.code != 0 || got.out == "" {
				t.Errorf("got %d, %s", got.code, diff)
			}
		})
	}
}
