package cli

import (
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// TestOrderOfWhatIsDone: parallel work is printed in the order of the items, with --compat=crictl in the order of
// completion.
func TestOrderOfWhatIsDone(t *testing.T) {
	for compat, want := range map[bool]string{false: "a\nb\n", true: "b\na\n"} {
		var out test.Buffer
		p := NewPrinter(&Process{Out: &out})
		p.Compat = compat
		second := make(chan struct{})
		err := InParallel(p, []string{"a", "b"}, 2, func(p *Printer, item string) error {
			if item == "a" {
				<-second
			}
			err := p.Say("%s", item)
			if item == "b" {
				close(second)
			}
			return err
		})
		if err != nil || out.String() != want {
			t.Errorf("compat %t: got %q, %v, want %q", compat, out.String(), err, want)
		}
	}
}
