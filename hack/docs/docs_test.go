package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/internal/test"
)

// TestCommandPagesAreCurrent checks that docs/commands equals the output of `make docs`.
func TestCommandPagesAreCurrent(t *testing.T) {
	t.Parallel()
	const dir = "../../docs/commands"
	want := commandPages(app())
	there, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range there {
		if want[entry.Name()] == "" {
			t.Errorf("%s is of no verb: make docs", entry.Name())
		}
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("%s is not current (%v): make docs", name, err)
		}
	}
}

func TestManualHasEveryCommandAndFlag(t *testing.T) {
	t.Parallel()
	app := app()
	pages := manual(app, time.Unix(86400, 0))
	for name, page := range pages {
		pages[name] = strings.ReplaceAll(page, `\-`, "-")
	}
	var check func(page, name string, c *urfave.Command)
	check = func(page, name string, c *urfave.Command) {
		if !strings.Contains(page, name) {
			t.Errorf("%s is not in its page", name)
		}
		for _, f := range c.Flags {
			if cli.IsVisible(f) && !strings.Contains(page, argv.Dashed(f.Names()[0])) {
				t.Errorf("%s: --%s is not in the manual", name, f.Names()[0])
			}
		}
		for _, sub := range c.Subcommands {
			check(page, name+" "+sub.Name, sub)
		}
	}
	for _, c := range app.Commands {
		if !strings.Contains(pages["crishim.1"], "crishim-"+c.Name) {
			t.Errorf("%s is not in the page of crishim", c.Name)
		}
		check(pages["crishim-"+c.Name+".1"], "crishim "+c.Name, c)
	}
	if page := pages["crishim-ps.1"]; !strings.Contains(page, `.TH CRISHIM-PS "1" "1970-01-02"`) {
		t.Errorf("the title of ps: %.80q", page)
	}
}

// TestManualIsRead checks the manual pages with groff, if installed.
func TestManualIsRead(t *testing.T) {
	t.Parallel()
	groff, err := exec.LookPath("groff")
	if err != nil {
		test.Missing(t, "no groff")
	}
	for name, page := range manual(app(), time.Now()) {
		cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-z")
		cmd.Stdin = strings.NewReader(page)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestEscape checks that no character of a usage is interpreted as Markdown.
func TestEscape(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"[IP:]HOST:CONTAINER[/udp]", "a*b*c", "a_b_c", "<none>:<none>", "a|b|c", "`x`", `a\b`, "#1", "~/.docker", "a && b", "[x](y)"} {
		page := string(md2man.Render([]byte("# X\n\n" + escape(text) + "\n")))
		read := strings.NewReplacer(`\-`, "-", `\[rs]`, `\`, `\\`, `\`, `\&`, "", `\e`, `\`).Replace(page)
		if !strings.Contains(read, "\n"+text+"\n") {
			t.Errorf("%q became %q", text, page)
		}
	}
}
