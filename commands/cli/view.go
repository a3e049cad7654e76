package cli

import (
	"cmp"
	"context"
	"io"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/output"
)

// View has the flags for the format of the result.
type View struct {
	output.Options
	AnyFormat       bool   // an unknown format prints the table, as in crictl's images, stats and statsp; set only with --compat=crictl
	FormatFlag      string // "" for the verb's default
	template, names string
	wide            bool
	columns         output.Columns
}

// Flags returns the flags of a verb that shows one object.
func (v *View) Flags() []urfave.Flag {
	return []urfave.Flag{
		chosen(&v.FormatFlag, strings.Split(strings.ReplaceAll(output.FormatNames(), "TEMPLATE", ""), "|"), "output", "Print as `FORMAT`: "+strings.ReplaceAll(output.FormatNames(), "|", ", "), "o"),
		StringFlag(&v.template, "template", "Print with the Go `TEMPLATE`, same as -o go-template=TEMPLATE"),
	}
}

// TableFlags returns the flags of a verb that shows a table with these columns.
func (v *View) TableFlags(columns output.Columns) []urfave.Flag {
	v.columns = columns
	return append(v.Flags(),
		BoolFlag(&v.NoTrunc, "no-trunc", "Print IDs and digests in full"),
		BoolFlag(&v.NoHeaders, "no-headers", "Do not print column headers"),
		chosen(&v.names, columns, "columns", "Show these `COLUMNS`, separated by commas: "+columns.String()),
	)
}

// ListFlags returns the flags of a verb that shows a list with these columns. With --quiet it prints only the identity.
func (v *View) ListFlags(columns output.Columns, identity string) []urfave.Flag {
	return append(v.TableFlags(columns),
		BoolFlag(&v.Quiet, "quiet", "Print only "+identity, "q"),
		SortFlag(v),
	)
}

// SortFlag returns --sort of a table.
func SortFlag(v *View) urfave.Flag {
	return chosen(&v.Sort, v.columns, "sort", "Sort by `COLUMN`, or in descending order by -COLUMN")
}

// WideFlag returns crictl's -v.
func (v *View) WideFlag() urfave.Flag {
	return BoolFlag(&v.wide, "verbose", "Show more columns, same as -o wide", "v")
}

// Check validates the flags and sets v.Options. With several nodes it also sets in.merged.
func (v *View) Check(in *Invocation) error {
	v.Nodes = in.several
	if v.Nodes && v.columns != nil {
		v.columns = append(output.Columns{output.NodeColumn}, v.columns...)
	}
	if err := v.read(in); err != nil || !v.Nodes {
		return err
	}
	merged := v.Options // the merged result has a column for the node, unlike the result of one node
	in.merged = &merged
	v.Options = v.WithoutNode()
	return nil
}

func (v *View) read(in *Invocation) (err error) {
	v.Crictl, v.Verbose = in.Compat, v.wide
	v.Width, v.Terminal, v.Color, v.Now = in.Printer.Width(), in.OutTerminal, in.Printer.Color(), in.Now()
	if v.names != "" {
		v.Columns = strings.Split(v.names, ",")
	}
	if in.Compat && in.line.Verb == "events" {
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
	if v.wide && v.Format.Kind == output.Default && !in.Compat {
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
func (v *View) CheckAlone(in *Invocation, c *urfave.Context) error {
	if err := ArgCount(c, 0, 0); err != nil {
		return err
	}
	return v.Check(in)
}

// Show returns the RunOn of a verb that shows one answer of the runtime.
func Show[R any](v *View, ask func(context.Context, *client.Conn) (R, error), show func(io.Writer, R, output.Options) error) func(context.Context, *Printer, *client.Conn) error {
	return func(ctx context.Context, p *Printer, conn *client.Conn) error {
		res, err := ask(ctx, conn)
		if err != nil {
			return err
		}
		return show(p.Out, res, v.Options)
	}
}

// WithExamples appends examples to a description. A test runs the examples.
func WithExamples(text string, examples ...string) string {
	return text + "\n\nExamples:\n  " + strings.Join(examples, "\n  ")
}

// ShowEach shows the answer of ask for each thing that exists. Listed things may disappear before ask; a missing thing
// that the user named is an error. failed is an earlier error.
func ShowEach[T, R any](p *Printer, v View, show func(io.Writer, []R, output.Options) error, things []T, listed bool, failed error, ask func(T) (R, error)) error {
	if p.Compat && failed != nil { // crictl stops at the first missing object
		return failed
	}
	var found []R
	for _, one := range things {
		answer, err := ask(one)
		if listed && IsGone(err) {
			continue
		}
		if p.Compat && err != nil {
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
	if len(found) == 0 && p.Compat {
		return &UsageError{Text: "No IDs provided or nothing found per filter", Kind: argv.NothingFound}
	}
	return Join(show(p.Out, found, v.Options), failed)
}

// DetailsFlag returns --quiet of the inspect verbs.
func DetailsFlag(quiet *bool) urfave.Flag {
	return BoolFlag(quiet, "quiet", "Omit the runtime's own details", "q")
}

// checkEventsFormat returns crictl's error if crictl does not support the format for events.
func (v *View) checkEventsFormat() error {
	format := cmp.Or(v.FormatFlag, "json")
	_, unknown := output.ParseFormat(format)
	switch {
	case v.template != "" && format == "go-template":
		if _, err := output.ParseFormat("go-template=" + v.template); err != nil {
			return Usagef("failed to parse go-template: %v", err)
		}
	case v.template != "":
		return Usagef("template can't be used with %q format", format)
	case unknown != nil && format != "go-template":
		return Usagef("don't support %q format", format)
	}
	return nil
}
