package node

import (
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
)

// Pages returns docs/commands by file name: a page for each verb, and README.md, which lists them.
func Pages(app *urfave.App) map[string]string {
	const note = "<!-- Written by `make docs` from the tables of `crishim help`. -->\n\n"
	var index manual
	index.printf("%s# Commands\n\n    %s\n", note, app.UsageText)
	pages := map[string]string{}
	for i, c := range app.Commands {
		if i == 0 || c.Category != app.Commands[i-1].Category {
			index.printf("\n## %s\n\n| command | what it does |\n|---|---|\n", escape(c.Category))
		}
		index.printf("| [%s](%s.md) | %s |\n", escape(strings.Join(c.Names(), ", ")), c.Name, escape(c.Usage))
		var p manual
		p.printf("%s", note)
		p.verb(c.Name, c)
		pages[c.Name+".md"] = p.String()
	}
	index.printf("\n## Global options\n\n")
	index.table(app.Flags)
	pages["README.md"] = index.String()
	return pages
}

// verb writes a command as a section, and those below it as sections of that.
func (m *manual) verb(name string, c *urfave.Command) {
	title := "#" + strings.Repeat("#", strings.Count(name, " "))
	m.printf("%s crishim %s\n\n%s\n\n    %s\n", title, escape(name), escape(c.Usage), strings.TrimSpace("crishim "+name+" [options] "+c.ArgsUsage))
	text, examples, _ := strings.Cut(c.Description, "\n\nExamples:\n")
	if text != "" {
		m.printf("\n%s\n", escape(text))
	}
	if len(c.Aliases) > 0 {
		m.printf("\nAlso: %s\n", escape(strings.Join(c.Aliases, ", ")))
	}
	if examples != "" {
		m.printf("\n%s# Examples\n\n", title)
		for line := range strings.SplitSeq(examples, "\n") {
			m.printf("    %s\n", strings.TrimSpace(line))
		}
	}
	m.printf("\n%s# Options\n\n", title)
	m.table(c.Flags)
	for _, sub := range c.Subcommands {
		m.printf("\n")
		m.verb(name+" "+sub.Name, sub)
	}
}

func (m *manual) table(flags []urfave.Flag) {
	m.printf("| option | meaning |\n|---|---|\n")
	for _, f := range flags {
		if cli.IsVisible(f) {
			m.printf("| `%s` | %s |\n", strings.ReplaceAll(strings.TrimSpace(cli.FlagNames(f)), "|", `\|`), escape(cli.FlagUsage(f)))
		}
	}
}
