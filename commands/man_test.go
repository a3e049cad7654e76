package commands

import (
	"os/exec"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
)

func TestManPageHasEveryCommandAndFlag(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t}
	hyphens := strings.NewReplacer("-", `\-`)
	r := c.run("man")
	if r.code != 0 || !strings.HasPrefix(r.out, ".TH CRISHIM 1\n") {
		t.Fatalf("got %+v", r)
	}
	everyCommand(newApp(testEnv().Fresh(false)), func(name string, command *urfave.Command) {
		if command.Hidden {
			return
		}
		_, section, ok := strings.Cut(r.out, "\n.SS "+hyphens.Replace(name)+"\n")
		if !ok {
			t.Errorf("%s is not in the manual", name)
		}
		section, _, _ = strings.Cut(section, "\n.SS ")
		for _, f := range command.Flags {
			if v, ok := f.(urfave.VisibleFlag); ok && v.IsVisible() && !strings.Contains(section, hyphens.Replace(cli.Dashed(f.Names()[0]))) {
				t.Errorf("%s: --%s is not in the manual", name, f.Names()[0])
			}
		}
	})
}

// TestManPageIsRead has groff look for mistakes, where it is installed.
func TestManPageIsRead(t *testing.T) {
	t.Parallel()
	groff, err := exec.LookPath("groff")
	if err != nil {
		test.Missing(t, "no groff")
	}
	cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-z")
	cmd.Stdin = strings.NewReader((&commandTest{t: t}).run("man").out)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
