package commands

import (
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/output"
)

// view is how a verb shows its result: the flags, and what output makes of them.
type view struct {
	output.Options
	format, template, names string
	wide                    bool
	columns                 output.Columns
}

// flags are those of a verb that shows one object.
func (v *view) flags() []cli.Flag {
	return []cli.Flag{
		chosen(&v.format, strings.Split(strings.ReplaceAll(output.FormatNames(), "TEMPLATE", ""), "|"), "output", "`FORMAT`: "+output.FormatNames(), "o"),
		stringFlag(&v.template, "template", "`TEMPLATE` of -o go-template"),
	}
}

// tableFlags are those of a verb that shows a table with these columns.
func (v *view) tableFlags(columns output.Columns) []cli.Flag {
	v.columns = columns
	return append(v.flags(),
		boolFlag(&v.NoTrunc, "no-trunc", "print ids and digests in full"),
		boolFlag(&v.NoHeaders, "no-headers", "omit the line of column names"),
		chosen(&v.names, columns, "columns", "show these `COLUMNS`, separated by commas: "+columns.String()),
	)
}

// listFlags are those of a verb that shows a list with these columns.
func (v *view) listFlags(columns output.Columns) []cli.Flag {
	return append(v.tableFlags(columns),
		boolFlag(&v.Quiet, "quiet", "print ids only", "q"),
		chosen(&v.Sort, columns, "sort", "sort by `COLUMN`; -COLUMN sorts downwards"),
	)
}

// wideFlag is crictl's -v.
func (v *view) wideFlag() cli.Flag {
	return boolFlag(&v.wide, "verbose", "more columns, as -o wide", "v")
}

// check reads what the flags say, before there is anything to show.
func (v *view) check(env *Env) (err error) {
	v.Width, v.Color, v.Now = env.width(), env.color(), env.Now()
	if v.names != "" {
		v.Columns = strings.Split(v.names, ",")
	}
	if v.template != "" {
		if v.format != "" && v.format != "go-template" {
			return usagef("--template goes with -o go-template, not -o %s", v.format)
		}
		v.format = "go-template=" + v.template
	}
	if v.Format, err = output.ParseFormat(v.format); err != nil {
		return usagef("%v", err)
	}
	if v.wide && v.Format.Kind == output.Default {
		v.Format.Kind = output.Wide
	}
	if v.columns == nil {
		return nil
	}
	if err := v.columns.Check(v.Options); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// checkAlone is check of a verb that takes no arguments.
func (v *view) checkAlone(env *Env, c *cli.Context) error {
	if err := argCount(c, 0, 0); err != nil {
		return err
	}
	return v.check(env)
}

// describe is a verb's description followed by its examples, which a test
// runs.
func describe(text string, examples ...string) string {
	return text + "\n\nExamples:\n  " + strings.Join(examples, "\n  ")
}

// showEach asks for each of several things and shows those that are there, also when others
// are not; failed is what has gone wrong before.
func showEach[T, R any](env *Env, v view, show func(io.Writer, []R, output.Options) error, things []T, failed error, ask func(T) (R, error)) error {
	var found []R
	for _, one := range things {
		answer, err := ask(one)
		if err == nil {
			found = append(found, answer)
		}
		failed = join(failed, err)
	}
	if len(found) == 0 && failed != nil {
		return failed
	}
	return join(show(env.Out, found, v.Options), failed)
}

func detailsFlag(quiet *bool) cli.Flag {
	return boolFlag(quiet, "quiet", "leave out the runtime's own details", "q")
}
