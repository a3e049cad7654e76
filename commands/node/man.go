package node

import (
	"fmt"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
)

// NewMan prints the manual page, made from the same tables as the help. The
// library's own generator would bring a Markdown parser into the program.
func NewMan(env *cli.Env) *urfave.Command {
	return &urfave.Command{
		Name:        "man",
		Usage:       "print the manual page",
		Description: cli.WithExamples("In the format of man(7), for packages and for reading at once.", "crishim man >crishim.1", "crishim man | man -l -"),
		Action: func(c *urfave.Context) error {
			if err := cli.ArgCount(c, 0, 0); err != nil {
				return err
			}
			_, err := io.WriteString(env.Out, manPage(c.App))
			return err
		},
	}
}

func manPage(app *urfave.App) string {
	m := &manual{}
	m.printf(".TH CRISHIM 1\n.SH NAME\ncrishim \\- %s\n", roff(app.Usage))
	m.printf(".SH SYNOPSIS\n%s\n.SH GLOBAL OPTIONS\n", roff(app.UsageText))
	m.flags(app.Flags)
	m.printf(".SH COMMANDS\n")
	for _, c := range app.Commands {
		m.command("", c)
	}
	m.printf(".SH EXIT STATUS\n0 done; 1 it failed; 2 wrong usage. exec, and run in the foreground, give the command's own status, " +
		"and 125 for a failure of crishim's own.\n")
	m.printf(".SH FILES\n/etc/crictl.yaml: settings; see \\fBcrishim config\\fR.\n")
	return m.String()
}

// manual is a page under construction.
type manual struct{ strings.Builder }

func (m *manual) printf(format string, args ...any) { fmt.Fprintf(&m.Builder, format, args...) }

func (m *manual) command(parent string, c *urfave.Command) {
	if c.Hidden {
		return
	}
	name := strings.TrimSpace(parent + " " + c.Name)
	m.printf(".SS %s\n\\fBcrishim %s\\fR [options] %s\n", roff(name), roff(name), roff(c.ArgsUsage))
	if len(c.Aliases) > 0 {
		m.printf(".PP\nAlso: %s\n", roff(strings.Join(c.Aliases, ", ")))
	}
	text, examples, _ := strings.Cut(c.Description, "\n\nExamples:\n")
	m.printf(".PP\n%s.\n", roff(c.Usage))
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		m.printf(".PP\n%s\n", roff(paragraph))
	}
	m.flags(c.Flags)
	if examples != "" {
		m.printf(".PP\nExamples:\n.PP\n.nf\n%s\n.fi\n", roff(examples))
	}
	for _, sub := range c.Subcommands {
		m.command(name, sub)
	}
}

func (m *manual) flags(flags []urfave.Flag) {
	for _, f := range flags {
		if v, ok := f.(urfave.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		var names []string
		for _, name := range f.Names() {
			names = append(names, `\fB`+roff(cli.Dashed(name))+`\fR`)
		}
		value, usage := cli.Placeholder(f), ""
		if value != "" {
			value = ` \fI` + roff(value) + `\fR`
		}
		if d, ok := f.(urfave.DocGenerationFlag); ok {
			usage = d.GetUsage()
		}
		m.printf(".TP\n%s%s\n%s\n", strings.Join(names, ", "), value, roff(strings.ReplaceAll(usage, "`", "")))
	}
}

// roff keeps text from being taken for troff's own: backslashes, hyphens that
// people copy, and lines that begin with a control character.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
