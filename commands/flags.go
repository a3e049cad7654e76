package commands

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/output"
)

// describe is a verb's description followed by its examples, which a test
// runs.
func describe(text string, examples ...string) string {
	return text + "\n\nExamples:\n  " + strings.Join(examples, "\n  ")
}

// formatFlags are the flags of a verb that shows one object.
func formatFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT`: " + output.FormatNames()},
		&cli.StringFlag{Name: "template", Usage: "`TEMPLATE` of -o go-template"},
	}
}

// listFlags are the flags of a verb that shows a list with these columns.
func listFlags(columns output.Columns) []cli.Flag {
	return append(append(formatFlags(), tableFlags(columns)...),
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "ids only"},
		&cli.StringFlag{Name: "sort", Usage: "sort by `COLUMN`; -COLUMN sorts downwards"},
	)
}

// tableFlags are the flags of a verb that shows a table with these columns.
func tableFlags(columns output.Columns) []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "no-trunc", Usage: "ids and digests in full"},
		&cli.BoolFlag{Name: "no-headers", Usage: "no line of column names"},
		&cli.StringFlag{Name: "columns", Usage: "show these `COLUMNS`, separated by commas: " + columns.String()},
	}
}

// readFormat reads formatFlags.
func readFormat(env *Env, c *cli.Context) (output.Options, error) {
	o := output.Options{
		NoHeaders: c.Bool("no-headers"),
		NoTrunc:   c.Bool("no-trunc"),
		Quiet:     c.Bool("quiet"),
		Sort:      c.String("sort"),
		Width:     env.width(),
		Color:     env.color(),
		Now:       env.Now(),
	}
	if columns := c.String("columns"); columns != "" {
		o.Columns = strings.Split(columns, ",")
	}
	text := c.String("output")
	template := c.String("template")
	if template != "" {
		if text != "" && text != "go-template" {
			return o, usagef("--template goes with -o go-template, not -o %s", text)
		}
		text = "go-template=" + template
	}
	var err error
	if o.Format, err = output.ParseFormat(text); err != nil {
		return o, usagef("%v", err)
	}
	return o, nil
}

// noArgs refuses arguments.
func noArgs(c *cli.Context) error { return argCount(c, 0, 0) }

// argCount checks how many arguments there are; most below 0 means any number.
func argCount(c *cli.Context, least, most int) error {
	n := c.Args().Len()
	switch {
	case n < least && n == 0:
		return &usageError{text: c.Command.Name + " needs " + c.Command.ArgsUsage, noArguments: true}
	case n < least:
		return wrongCount("%s needs %s: only %d given", c.Command.Name, c.Command.ArgsUsage, n)
	case most == 0 && n > 0:
		return wrongCount("%s takes no arguments, got %s", c.Command.Name, quote(c.Args().First()))
	case most >= 0 && n > most:
		return wrongCount("%s: unexpected argument %s", c.Command.Name, quote(c.Args().Get(most)))
	}
	return nil
}

// wrongCount is too few or too many arguments.
func wrongCount(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...), wrongCount: true}
}

// readListFormat reads listFlags; -v stands for -o wide.
func readListFormat(env *Env, c *cli.Context, columns output.Columns) (output.Options, error) {
	o, err := readFormat(env, c)
	if err != nil {
		return o, err
	}
	if c.Bool("verbose") && o.Format.Kind == output.Default {
		o.Format.Kind = output.Wide
	}
	if err := columns.Check(o); err != nil {
		return o, usagef("%v", err)
	}
	return o, nil
}

// listOptions are those of a verb that shows a list and takes no arguments.
func listOptions(columns output.Columns) func(*Env, *cli.Context) (output.Options, error) {
	return func(env *Env, c *cli.Context) (output.Options, error) {
		if err := noArgs(c); err != nil {
			return output.Options{}, err
		}
		return readListFormat(env, c, columns)
	}
}

func quote(s string) string { return strconv.Quote(s) }
