package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/argv"
)

// manual returns the manual pages in man(7) format, by file name.
func manual(app *urfave.App, date time.Time) map[string]string {
	render := func(text string) string {
		return string(md2man.Render([]byte(strings.Replace(text, " 1\n", fmt.Sprintf(" \"1\" %q\n", date.UTC().Format(time.DateOnly)), 1))))
	}
	pages := map[string]string{"crishim.1": render(programPage(app))}
	for _, c := range app.Commands {
		pages["crishim-"+c.Name+".1"] = render(commandPage(c))
	}
	return pages
}

func programPage(app *urfave.App) string {
	var p page
	p.printf("%% CRISHIM 1\n\n# NAME\n\ncrishim - %s\n\n# SYNOPSIS\n\n**crishim** %s\n", escape(app.Usage), escape(app.UsageText))
	p.printf("\n# COMMANDS\n")
	for i, c := range app.Commands {
		if i == 0 || c.Category != app.Commands[i-1].Category {
			p.printf("\n## %s\n", escape(c.Category))
		}
		p.printf("\n**crishim-%s**(1)\n:   %s\n", escape(c.Name), escape(c.Usage))
	}
	p.printf("\n# GLOBAL OPTIONS\n")
	p.flags(app.Flags)
	p.printf("\n# EXIT STATUS\n\n**0**\n:   done\n\n**1**\n:   it failed\n\n**2**\n:   wrong usage\n\n")
	p.printf("**exec**, **debug** and **run** in the foreground end with the command's own status, and with 125 for a failure of crishim.\n")
	p.printf("\n# FILES\n\n*/etc/crictl.yaml*\n:   settings; see **crishim-config**(1)\n")
	return p.String()
}

func commandPage(c *urfave.Command) string {
	var p page
	p.printf("%% CRISHIM-%s 1\n\n# NAME\n\ncrishim-%s - %s\n", escape(strings.ToUpper(c.Name)), escape(c.Name), escape(c.Usage))
	p.printf("\n# SYNOPSIS\n\n")
	p.synopsis("crishim "+c.Name, c)
	for _, sub := range c.Subcommands {
		p.synopsis("crishim "+c.Name+" "+sub.Name, sub)
	}
	text, examples, _ := strings.Cut(c.Description, "\n\nExamples:\n")
	p.printf("\n# DESCRIPTION\n\n%s\n", escape(text))
	if len(c.Aliases) > 0 {
		p.printf("\nAlso: %s\n", escape(strings.Join(c.Aliases, ", ")))
	}
	p.printf("\n# OPTIONS\n")
	p.flags(c.Flags)
	for _, sub := range c.Subcommands {
		p.printf("\n# %s\n\n%s\n", escape(strings.ToUpper(sub.Name)), escape(sub.Usage))
		p.flags(sub.Flags)
	}
	if examples != "" {
		p.printf("\n# EXAMPLES\n\n")
		for line := range strings.SplitSeq(examples, "\n") {
			p.printf("    %s\n", strings.TrimSpace(line))
		}
	}
	p.printf("\n# SEE ALSO\n\n**crishim**(1)\n")
	return p.String()
}

type page struct{ strings.Builder }

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

func (p *page) synopsis(name string, c *urfave.Command) {
	p.printf("**%s** [options] %s\n\n", escape(name), escape(c.ArgsUsage))
}

func (p *page) flags(flags []urfave.Flag) {
	for _, f := range flags {
		if !cli.IsVisible(f) {
			continue
		}
		var names []string
		for _, name := range f.Names() {
			names = append(names, "**"+escape(argv.Dashed(name))+"**")
		}
		value := cli.Placeholder(f)
		if value != "" {
			value = " *" + escape(value) + "*"
		}
		p.printf("\n%s%s\n:   %s\n", strings.Join(names, ", "), value, escape(cli.FlagUsage(f)))
	}
}

var markdown = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`, "|", `\|`, "&", `\&`)

func escape(text string) string { return markdown.Replace(text) }

// documents describes the output of -o json.
const documents = "## Documents of -o json\n" +
	"\n" +
	"Lists are `{\"containers\": [Container...]}` for `ps`; `items` of PodSandbox for `pods`, `images` of Image, `stats` of ContainerStats and, for `statsp`, of\n" +
	"PodSandboxStats. `inspect`, `inspectp`, `inspecti`, `info` and `imagefsinfo` have ContainerStatus, PodSandboxStatus, Image, RuntimeStatus and\n" +
	"ImageFsInfoResponse under `status`. `version`, `runtime-config`, `metricsp`, `metricdescs` and `events` are the response itself, `apply` a Pod. All of\n" +
	"these are CRI v1 and Kubernetes messages, and a newer runtime may add fields; the other verbs' documents are crishim's own.\n"

// commandPages returns the files of docs/commands: a page for each verb, and README.md with the list.
func commandPages(app *urfave.App) map[string]string {
	const note = "<!-- Written by `make docs` from the tables of `crishim help`. -->\n\n"
	var index page
	index.printf("%s# Commands\n\n    crishim %s\n", note, app.UsageText)
	pages := map[string]string{}
	for i, c := range app.Commands {
		if i == 0 || c.Category != app.Commands[i-1].Category {
			index.printf("\n## %s\n\n| command | what it does |\n|---|---|\n", escape(c.Category))
		}
		index.printf("| [%s](%s.md) | %s |\n", escape(strings.Join(c.Names(), ", ")), c.Name, escape(c.Usage))
		var p page
		p.printf("%s", note)
		p.verb(c.Name, c)
		switch c.Name { // make picture draws them
		case "top":
			p.printf("\n![A terminal: pods with their containers, and plots of the selected one](../top.svg)\n")
		case "why":
			p.printf("\n![A terminal: three pods that do not run, with the reason and the next command for each](../why.svg)\n")
		}
		pages[c.Name+".md"] = p.String()
	}
	index.printf("\n## Global options\n\n")
	index.table(app.Flags)
	index.printf("\n%s", documents)
	pages["README.md"] = index.String()
	return pages
}

// verb writes a command as a section and its subcommands as subsections.
func (p *page) verb(name string, c *urfave.Command) {
	title := "#" + strings.Repeat("#", strings.Count(name, " "))
	p.printf("%s crishim %s\n\n%s\n\n    %s\n", title, escape(name), escape(c.Usage), strings.TrimSpace("crishim "+name+" [options] "+c.ArgsUsage))
	text, examples, _ := strings.Cut(c.Description, "\n\nExamples:\n")
	if text != "" {
		p.printf("\n%s\n", escape(text))
	}
	if len(c.Aliases) > 0 {
		p.printf("\nAlso: %s\n", escape(strings.Join(c.Aliases, ", ")))
	}
	if examples != "" {
		p.printf("\n%s# Examples\n\n", title)
		for line := range strings.SplitSeq(examples, "\n") {
			p.printf("    %s\n", strings.TrimSpace(line))
		}
	}
	p.printf("\n%s# Options\n\n", title)
	p.table(c.Flags)
	for _, sub := range c.Subcommands {
		p.printf("\n")
		p.verb(name+" "+sub.Name, sub)
	}
}

func (p *page) table(flags []urfave.Flag) {
	p.printf("| option | meaning |\n|---|---|\n")
	for _, f := range flags {
		if cli.IsVisible(f) {
			p.printf("| `%s` | %s |\n", strings.ReplaceAll(strings.TrimSpace(cli.FlagNames(f)), "|", `\|`), escape(cli.FlagUsage(f)))
		}
	}
}
