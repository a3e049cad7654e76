package verbs

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
)

// everyCommand calls f for each verb and subcommand with its full name.
func everyCommand(app *cli.App, f func(name string, c *urfave.Command)) {
	var walk func(prefix string, commands []*urfave.Command)
	walk = func(prefix string, commands []*urfave.Command) {
		for _, c := range commands {
			f(prefix+c.Name, c)
			walk(prefix+c.Name+" ", c.Subcommands)
		}
	}
	walk("", app.Commands)
}

// examples are the lines below "Examples:" in a description.
func examples(description string) []string {
	_, text, found := strings.Cut(description, "\n\nExamples:\n")
	if !found {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// phrase matches the usage of a verb or flag.
var phrase = regexp.MustCompile("^[A-Z].*[^.]$")

func TestEveryVerbHasHelpWithExamples(t *testing.T) {
	app := testApp()
	everyCommand(app, func(name string, c *urfave.Command) {
		if !phrase.MatchString(c.Usage) {
			t.Errorf("%s: usage is %q, want a phrase with a capital letter and without a full stop", name, c.Usage)
		}
		if text, _, _ := strings.Cut(c.Description, "\n\nExamples:\n"); !strings.HasSuffix(text, ".") {
			t.Errorf("%s: the description has no full stop: %q", name, text)
		}
		if len(examples(c.Description)) == 0 {
			t.Errorf("%s has no example in its help", name)
		}
		for _, flag := range c.Flags {
			if usage := cli.FlagUsage(flag); cli.IsVisible(flag) && !phrase.MatchString(usage) {
				t.Errorf("%s: --%s: usage is %q, want a phrase with a capital letter and without a full stop", name, flag.Names()[0], usage)
			}
		}
	})
	for _, flag := range app.Flags {
		if usage := cli.FlagUsage(flag); !phrase.MatchString(usage) {
			t.Errorf("--%s: usage is %q, want a phrase with a capital letter and without a full stop", flag.Names()[0], usage)
		}
	}
}

// An example is a command line that its verb's flags can read.
func TestHelpExamplesAreRead(t *testing.T) {
	t.Parallel()
	app := testApp()
	everyCommand(app, func(name string, c *urfave.Command) {
		for _, line := range examples(c.Description) {
			args := words(line)
			if len(args) == 0 || args[0] != "crishim" {
				continue // a line of shell around it
			}
			got, err := arrange(args)
			if err != nil {
				t.Errorf("%s: example %q: %v", name, line, err)
			} else if verb, _, _ := strings.Cut(name, " "); got.Verb != verb {
				t.Errorf("%s: example %q is of another command, %q", name, line, got.Verb)
			}
		}
	})
}

// words takes an example apart as a shell would, up to a redirection or a pipe.
func words(line string) []string {
	var all []string
	var word strings.Builder
	quoted, begun := rune(0), false
	flush := func() {
		if begun {
			all = append(all, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quoted != 0 && r == quoted:
			quoted = 0
		case quoted != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quoted, begun = r, true
		case r == ' ':
			flush()
		case r == '|' || r == '<' || r == '>' || r == '#':
			flush()
			return all
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	flush()
	return all
}

func testProcess() *cli.Process {
	return &cli.Process{
		In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{},
		LookupEnv: func(string) (string, bool) { return "", false }, Now: testTime,
	}
}

func testApp() *cli.App { return cli.NewApp(testProcess(), false, commands.Groups()).WithAllVerbs() }

func TestHelpGoesToStdoutAndSucceeds(t *testing.T) {
	c := &commandTest{t: t, vars: map[string]string{}}
	for _, args := range [][]string{{"--help"}, {"help"}, {}, {"help", "ps"}, {"ps", "--help"}, {"ps", "-h"}, {"exec", "--help"}, {"help", "--help"}, {"help", "-h", "ps"}, {"help", "ps", "--help"}, {"create", "jsonschema", "--help"}} {
		r := c.run(args...)
		if r.code != 0 || r.err != "" || !strings.HasPrefix(r.out, "NAME:\n") {
			t.Errorf("%q: exit %d, stderr %q, stdout %q", args, r.code, r.err, r.out)
		}
	}
	if r := c.run("--version"); r.code != 0 || !strings.HasPrefix(r.out, "crishim version v0.0.0-test ") {
		t.Errorf("--version: exit %d, stdout %q", r.code, r.out)
	}
}

// TestHelpFits: the first page fits a terminal of 80 by 24 and names every verb, and no page is
// wider than the terminal but where a word, the name of a flag or an example is.
var defaultTwice = regexp.MustCompile(`\(default [^)]*\) \(default`)

func TestHelpFits(t *testing.T) {
	page := func(width int, args ...string) string {
		env, out := testProcess(), &bytes.Buffer{}
		env.Out, env.OutTerminal, env.Width = out, true, func() int { return width }
		if code := commands.Main(t.Context(), append([]string{"crishim"}, args...), env); code != 0 {
			t.Errorf("%q: exit %d", args, code)
		}
		return out.String()
	}
	first := page(80, "help")
	if lines := strings.Count(first, "\n"); lines > 24 {
		t.Errorf("the first page has %d lines:\n%s", lines, first)
	}
	pages := [][]string{{"help"}, {"help", "all"}}
	everyCommand(testApp(), func(name string, command *urfave.Command) {
		pages = append(pages, append([]string{"help"}, strings.Fields(name)...))
		if !strings.Contains(name, " ") && !strings.Contains(first, command.Name) {
			t.Errorf("the first page does not name %s", name)
		}
	})
	for _, args := range pages {
		if words := strings.Join(strings.Fields(page(80, args...)), " "); defaultTwice.MatchString(words) || strings.Contains(words, "(default:") {
			t.Errorf("%q: a default is written twice, or in two ways: %s", args, defaultTwice.FindString(words))
		}
		for _, width := range []int{80, 50} {
			examples := false
			for line := range strings.SplitSeq(page(width, args...), "\n") {
				if strings.HasSuffix(line, ":") {
					examples = line == "EXAMPLES:"
				}
				if len([]rune(line)) > width && !examples && strings.Contains(strings.TrimSpace(line), " ") && !strings.HasPrefix(strings.TrimSpace(line), "--") {
					t.Errorf("%q at %d: %q", args, width, line)
				}
			}
		}
	}
}

func TestNoTwoCommandsShareAName(t *testing.T) {
	owner := map[string]string{}
	for _, c := range testApp().Commands {
		for _, name := range c.Names() {
			if other, taken := owner[name]; taken {
				t.Errorf("%q names both %s and %s", name, other, c.Name)
			}
			owner[name] = c.Name
		}
	}
}
