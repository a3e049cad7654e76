package verbs

import (
	"strings"
	"testing"
)

// TestFilesWithoutAnEnd: a device in the place of a file does not take all memory.
func TestFilesWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"runp /dev/zero", "--config /dev/zero pods", "apply -f /dev/zero", "serve --config-file /dev/zero"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			c := &commandTest{t: t}
			got := c.run(strings.Fields(line)...)
			if got.code == 0 || !strings.HasPrefix(got.err, "crishim: ") || !strings.Contains(got.err, "/dev/zero") || !strings.Contains(got.err, " MiB") {
				t.Errorf("got %d, %q, want that the file is too long", got.code, got.err)
			}
		})
	}
}
