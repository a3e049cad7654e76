package cli

import (
	"context"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/output"
)

// View has the options of the result, and its flags.
type View struct {
	output.Options
	AnyFormat       bool   // an unknown format is the table, as in some verbs of crictl
	FormatFlag      string // "" for the verb's default
	template, names string
	wide            bool
	columns         output.Columns
}

// Flags returns the flags of a verb that shows one object.
func (v *View) Flags() []urfave.Flag {
	return []urfave.Flag{
		chosen(&v.FormatFlag, strings.Split(strings.ReplaceAll(output.FormatNames(), "TEMPLATE", ""), "|"), "output", "print as `FORMAT`: "+strings.ReplaceAll(output.FormatNames(), "|", ", "), "o"),
		StringFlag(&v.template, "template", "print by the Go `TEMPLATE`, as -o go-template=TEMPLATE"),
	}
}

// TableFlags returns the flags of a verb that shows a table with these columns.
func (v *View) TableFlags(columns output.Columns) []urfave.Flag {
	v.columns = columns
	return append(v.Flags(),
		BoolFlag(&v.NoTrunc, "no-trunc", "print ids and digests in full"),
		BoolFlag(&v.NoHeaders, "no-headers", "omit the line of column names"),
		chosen(&v.names, columns, "columns", "show these `COLUMNS`, separated by commas: "+columns.String()),
	)
}

// ListFlags returns the flags of a verb that shows a list with these columns.
func (v *View) ListFlags(columns output.Columns) []urfave.Flag {
	return append(v.TableFlags(columns),
		BoolFlag(&v.Quiet, "quiet", "print ids only", "q"),
		SortFlag(v),
	)
}

// SortFlag returns --sort of a table.
func SortFlag(v *View) urfave.Flag {
	return chosen(&v.Sort, v.columns, "sort", "sort by `COLUMN`; -COLUMN sorts downwards")
}

// WideFlag returns crictl's -v.
func (v *View) WideFlag() urfave.Flag {
	return BoolFlag(&v.wide, "verbose", "more columns, as -o wide", "v")
}

// Check reads the flags.
func (v *View) Check(env *Env) error {
	v.Nodes = env.several != nil
	if v.Nodes && v.columns != nil {
		v.columns = append(output.Columns{output.NodeColumn}, v.columns...)
	}
	if err := v.read(env); err != nil || !v.Nodes {
		return err
	}
	shown := *v // with the column for the node, which the result of one node does not have
	env.shown = &shown
	v.Options = v.WithoutNode()
	return nil
}

func (v *View) read(env *Env) (err error) {
	v.Crictl, v.Verbose = env.Compat, v.wide
	v.Width, v.Terminal, v.Color, v.Now = env.width(), env.OutTerminal, env.Color(), env.Now()
	if v.names != "" {
		v.Columns = strings.Split(v.names, ",")
	}
	if env.Compat && env.line.Verb == "events" {
		if err := v.checkEventsFormat(); err != nil {
			return err
		}
	}
	if v.template != "" {
		if v.FormatFlag != "" && v.FormatFlag != "go-template" {
			return Usagef("--template goes with -o go-template, not -o %s", v.FormatFlag)
		}
		v.FormatFlag = "go-template=" + v.template
	}
	switch v.Format, err = output.ParseFormat(v.FormatFlag); {
	case err != nil && v.AnyFormat:
		v.Format = output.Format{}
	case err != nil:
		return &UsageError{Text: err.Error(), Kind: argv.UnknownFormat}
	}
	if v.wide && v.Format.Kind == output.Default && !env.Compat {
		v.Format.Kind = output.Wide
	}
	if v.columns == nil {
		return nil
	}
	if err := v.columns.Check(v.Options); err != nil {
		return Usagef("%v", err)
	}
	return nil
}

// CheckAlone is Check for a verb without arguments.
func (v *View) CheckAlone(env *Env, c *urfave.Context) error {
	if err := ArgCount(c, 0, 0); err != nil {
		return err
	}
	return v.Check(env)
}

// Show returns the action of a verb that shows one answer of the runtime.
func Show[R any](env *Env, v *View, ask func(context.Context, *client.Conn) (R, error), show func(io.Writer, R, output.Options) error) urfave.ActionFunc {
	return env.Connected(v.CheckAlone, func(ctx context.Context, env *Env, conn *client.Conn) error {
		res, err := ask(ctx, conn)
		if err != nil {
			return err
		}
		return show(env.Out, res, v.Options)
	})
}

// WithExamples returns a description with examples, which a test runs.
func WithExamples(text string, examples ...string) string {
	return text + "\n\nExamples:\n  " + strings.Join(examples, "\n  ")
}

// ShowEach asks for each of several things and shows those that exist. Things that were listed, and not
// named by the user, may be gone meanwhile. failed is an earlier error.
func ShowEach[T, R any](env *Env, v View, show func(io.Writer, []R, output.Options) error, things []T, listed bool, failed error, ask func(T) (R, error)) error {
	if env.Compat && failed != nil { // crictl stops at the first that is missing
		return failed
	}
	var found []R
	for _, one := range things {
		answer, err := ask(one)
		if listed && IsGone(err) {
			continue
		}
		if env.Compat && err != nil {
			return err
		}
		if err == nil {
			found = append(found, answer)
		}
		failed = Join(failed, err)
	}
	if len(found) == 0 && failed != nil {
		return failed
	}
	if len(found) == 0 && env.Compat {
		return &UsageError{Text: "No IDs provided or nothing found per filter", Kind: argv.NothingFound}
	}
	return Join(show(env.Out, found, v.Options), failed)
}

// DetailsFlag returns --quiet of the inspect verbs.
func DetailsFlag(quiet *bool) urfave.Flag {
	return BoolFlag(quiet, "quiet", "leave out the runtime's own details", "q")
}
