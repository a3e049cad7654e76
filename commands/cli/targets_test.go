package cli

import (
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// What is done side by side is printed in the order of the items; crictl's in the order of completion.
func TestOrderOfWhatIsDone(t *testing.T) {
	for compat, want := range map[bool]string{false: "a\nb\n", true: "b\na\n"} {
		var out test.Buffer
		env := (&Env{Out: &out}).Fresh(compat)
		second := make(chan struct{})
		err := InParallel(env, []string{"a", "b"}, 2, func(env *Env, item string) error {
			if item == "a" {
				<-second
			}
			err := env.Say("%s", item)
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
