package cli

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crishim/crishim/commands/cli/argv"
	urfave "github.com/urfave/cli/v2"
)

// help is a help page.
type help struct {
	app     *App
	command *urfave.Command // nil for the page of the program
	name    string          // of the command, with its parents
	all     bool            // all commands and the global options are listed
}

const (
	helpWidth = 80 // without a terminal
	helpLeast = 40
	helpName  = 28 // the widest column of flags and commands
)

func (h *help) write(out *Printer) error {
	p := &page{width: max(cmp.Or(out.Width(), helpWidth), helpLeast), crictl: out.Compat}
	switch {
	case h.command != nil:
		p.command(h.name, h.command)
	case h.all:
		p.program(h.app)
		p.everything(h.app)
	default:
		p.program(h.app)
		p.overview(h.app)
	}
	_, err := io.WriteString(out.Out, p.String())
	return err
}

// page is a help page under construction.
type page struct {
	strings.Builder
	width  int
	crictl bool // the headings are crictl's
}

func (p *page) program(app *App) {
	name, usage := app.Name, app.Usage
	if p.crictl {
		name, usage = "crictl", crictlSummary
	}
	p.text("NAME:", name+" - "+usage)
	p.text("\nUSAGE:", name+" "+app.UsageText)
}

// overview lists the commands; it fits a terminal of 24 lines.
func (p *page) overview(app *App) {
	p.WriteString("\n")
	for _, group := range app.groups {
		var names []string
		for _, e := range group.Verbs {
			names = append(names, e.Names[0])
		}
		p.entry(group.Title+":", 12, strings.Join(names, ", "))
	}
	p.WriteString("\n")
	p.entry("", 0, "crishim help COMMAND explains a command, crishim help all lists all commands and the global options.")
}

func (p *page) everything(app *App) {
	for _, group := range app.groups {
		p.WriteString("\n" + strings.ToUpper(group.Title) + ":\n")
		for _, e := range group.Verbs {
			p.entry(strings.Join(e.Names, ", "), helpName, e.Build(app.in).Usage)
		}
	}
	p.flags("\nGLOBAL OPTIONS:", app.Flags)
}

func (p *page) command(name string, c *urfave.Command) {
	usage := c.Usage
	if p.crictl {
		usage = cmp.Or(crictlSummaries[name], usage)
		name = "crictl " + name
	} else {
		name = "crishim " + name
	}
	p.text("NAME:", name+" - "+usage)
	p.text("\nUSAGE:", strings.TrimSpace(name+" [options] "+c.ArgsUsage))
	text, examples, _ := strings.Cut(c.Description, "\n\nExamples:\n")
	p.WriteString("\nDESCRIPTION:\n")
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			p.WriteString("\n")
		}
		p.entry("", 0, paragraph)
	}
	if examples != "" {
		p.WriteString("\nEXAMPLES:\n")
		for line := range strings.SplitSeq(examples, "\n") {
			p.WriteString("   " + strings.TrimSpace(line) + "\n")
		}
	}
	if len(c.Subcommands) > 0 {
		p.WriteString("\nCOMMANDS:\n")
		for _, sub := range c.Subcommands {
			p.entry(strings.Join(sub.Names(), ", "), helpName, sub.Usage)
		}
	}
	p.flags("\nOPTIONS:", c.Flags)
}

// flags lists flags as docker does: the short names first, the long ones in a column.
func (p *page) flags(title string, flags []urfave.Flag) {
	p.WriteString(title + "\n")
	column := 0
	for _, f := range flags {
		if length := utf8.RuneCountInString(FlagNames(f)) + 2; length <= helpName && IsVisible(f) {
			column = max(column, length)
		}
	}
	for _, f := range flags {
		if IsVisible(f) {
			p.entry(FlagNames(f), column, FlagUsage(f))
		}
	}
}

// IsVisible reports whether help shows a flag.
func IsVisible(f urfave.Flag) bool {
	v, ok := f.(urfave.VisibleFlag)
	return !ok || v.IsVisible()
}

// FlagNames returns the names of a flag with its placeholder, "-o, --output FORMAT", and dots if it may be
// given several times.
func FlagNames(f urfave.Flag) string {
	var short, long []string
	for _, name := range f.Names() {
		if len(name) == 1 {
			short = append(short, argv.Dashed(name))
		} else {
			long = append(long, argv.Dashed(name))
		}
	}
	names := strings.Join(slices.Concat(short, long), ", ")
	if len(short) == 0 {
		names = "    " + names
	}
	names = strings.TrimRight(names+" "+Placeholder(f), " ")
	if several, ok := f.(urfave.DocGenerationSliceFlag); ok && several.IsSliceFlag() {
		names += "..."
	}
	return names
}

// Placeholder returns the word between backticks in a flag's usage, or one for its kind.
func Placeholder(f urfave.Flag) string {
	d, ok := f.(urfave.DocGenerationFlag)
	if !ok || !d.TakesValue() {
		return ""
	}
	if parts := strings.SplitN(d.GetUsage(), "`", 3); len(parts) == 3 {
		return parts[1]
	}
	if t, ok := f.(*typedFlag); ok && t.placeholder != "" {
		return t.placeholder
	}
	return "VALUE"
}

// FlagUsage returns the usage of a flag with its default.
func FlagUsage(f urfave.Flag) string {
	d, ok := f.(urfave.DocGenerationFlag)
	if !ok {
		return ""
	}
	usage := strings.ReplaceAll(d.GetUsage(), "`", "")
	// The usage itself explains the defaults 0 and -1, and describes some defaults in words.
	if text := d.GetDefaultText(); d.TakesValue() && !slices.Contains([]string{"", "0", "-1"}, text) && !strings.Contains(usage, "(default ") {
		usage += " (default " + strings.Trim(text, `"`) + ")"
	}
	return usage
}

// text writes a title and one paragraph.
func (p *page) text(title, text string) {
	p.WriteString(title + "\n")
	p.entry("", 0, text)
}

// entry writes a name in a column and a wrapped text to its right, or below if the name is too long.
func (p *page) entry(name string, column int, text string) {
	const margin = "   "
	line := margin + name
	indent := len(margin) + column
	if gap := column - utf8.RuneCountInString(name); gap > 0 {
		line += strings.Repeat(" ", gap)
	} else if name != "" {
		p.WriteString(line + "\n")
		line = strings.Repeat(" ", indent)
	}
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > p.width {
			p.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.WriteString(strings.TrimRight(line, " ") + "\n")
}

// helpPage returns the page that a command line asks for, or the page of its verb.
func helpPage(app *App, line argv.Line) *help {
	page := &help{app: app, name: strings.Join(line.Path, " "), all: line.HelpAll}
	for i, word := range line.Path {
		if i == 0 {
			page.command = app.verb(word)
		} else {
			page.command = page.command.Command(word)
		}
	}
	return page
}
