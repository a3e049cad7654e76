package commands

import (
	"os/exec"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
)

// manPages are the page of the program and that of each command, by its name.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	c := &commandTest{t: t}
	pages := map[string]string{"": c.run("man").out}
	for _, command := range newApp(testEnv().Fresh(false)).Commands {
		r := c.run("man", command.Name)
		if r.code != 0 || r.err != "" {
			t.Errorf("man %s: %+v", command.Name, r)
		}
		pages[command.Name] = r.out
	}
	return pages
}

func TestManPagesHaveEveryCommandAndFlag(t *testing.T) {
	t.Parallel()
	pages := manPages(t)
	hyphens := strings.NewReplacer("-", `\-`)
	everyCommand(newApp(testEnv().Fresh(false)), func(name string, command *urfave.Command) {
		verb, _, _ := strings.Cut(name, " ")
		page := pages[verb]
		if !strings.Contains(page, "crishim "+name) && !strings.Contains(page, hyphens.Replace("crishim "+name)) {
			t.Errorf("%s is not in its page", name)
		}
		if !strings.Contains(strings.ReplaceAll(pages[""], `\-`, "-"), "crishim-"+verb) {
			t.Errorf("%s is not in the page of crishim", verb)
		}
		for _, f := range command.Flags {
			if v, ok := f.(urfave.VisibleFlag); ok && v.IsVisible() && !strings.Contains(strings.ReplaceAll(page, `\-`, "-"), cli.Dashed(f.Names()[0])) {
				t.Errorf("%s: --%s is not in the manual", name, f.Names()[0])
			}
		}
	})
}

// A page has a date: that of the sources in a build of a package, else today's.
func TestManPagesHaveADate(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t, vars: map[string]string{"SOURCE_DATE_EPOCH": "86400"}}
	if page := c.run("man", "ps").out; !strings.Contains(page, `.TH CRISHIM-PS "1" "1970-01-02"`) {
		t.Errorf("got %q", page)
	}
	c.vars["SOURCE_DATE_EPOCH"] = "today"
	if r := c.run("man"); r.code != 1 || !strings.Contains(r.err, "SOURCE_DATE_EPOCH") {
		t.Errorf("got %+v", r)
	}
}

// TestManPagesAreRead has groff look for mistakes, where it is installed.
func TestManPagesAreRead(t *testing.T) {
	t.Parallel()
	groff, err := exec.LookPath("groff")
	if err != nil {
		test.Missing(t, "no groff")
	}
	for name, page := range manPages(t) {
		cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-z")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
