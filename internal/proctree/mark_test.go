package proctree

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// HasEnded is only known for a process in the same scope.
func TestMark(t *testing.T) {
	t.Parallel()
	self, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	childs, err := Find(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if HasEnded(childs.Mark()) {
		t.Error("a child has ended before its end")
	}
	_ = child.Process.Kill()
	if err := child.Wait(); err == nil {
		t.Error("the child was not killed")
	}
	fields := strings.Fields(self.Mark())
	for name, c := range map[string]struct {
		mark  string
		ended bool
	}{
		"itself":                {self.Mark(), false},
		"a child that has":      {childs.Mark(), true},
		"another with its id":   {strings.Join(append(fields[:3:3], "1"), " "), true},
		"another boot":          {strings.Join(append([]string{"boot"}, fields[1:]...), " "), false},
		"another pid namespace": {strings.Join([]string{fields[0], "pid:[1]", fields[2], "1"}, " "), false},
		"nothing":               {"", false},
		"half":                  {strings.Join(fields[:3], " "), false},
	} {
		if got := HasEnded(c.mark); got != c.ended {
			t.Errorf("%s: got %v, want %v", name, got, c.ended)
		}
	}
}
