package criconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHugePagesOfTheHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"hugepages-1048576kB", "hugepages-2048kB", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]int64{2 << 20, 1 << 30}, hugePages(dir)); diff != "" {
		t.Error(diff)
	}
	if got := hugePages(filepath.Join(dir, "none")); len(got) > 0 {
		t.Errorf("a kernel without huge pages: got %v", got)
	}
}
