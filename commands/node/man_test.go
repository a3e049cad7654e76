package node

import (
	"testing"
)

func TestRoff(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a-b":     `a\-b`,
		`a\nb`:    `a\enb`,
		".x\n'y":  "\\&.x\n\\&'y",
		"fine, x": "fine, x",
	} {
		if got := roff(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
