package node

import (
	"cmp"
	"context"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/node/top"
	"github.com/crishim/crishim/output"
)

type topOptions struct {
	cli.View
	filter cli.Filter
	once   bool
	in     *cli.Invocation // runs the commands that keys start
	top.Options
}

// NewTop returns the verb that shows all pods and their usage live.
func NewTop(in *cli.Invocation) *cli.Verb {
	o := &topOptions{in: in}
	return &cli.Verb{
		Usage:     "Show live resource usage of pods and containers",
		ArgsUsage: "[NAMESPACE]",
		Args:      cli.First(cli.CompleteNamespaces, nil),
		Description: cli.WithExamples("Shows a tree of pods and containers with state, restarts, CPU, memory, network and disk rates, and plots of the last minutes for the selected row.\n"+
			"Keys follow logs, open a shell, describe, explain (why), stop, restart, pause, delete, sort and filter; ? shows them. Network is the pod's. - means that the runtime does not report the value.",
			"crishim top", "crishim top kube-system --sort mem", "crishim top --once -o json"),
		Flags: append([]urfave.Flag{
			o.filter.In.NamespaceFlag(),
			cli.SelectorFlag(&o.filter.Selector, "l"),
			cli.DurationFlag(&o.Every, "seconds", "Refresh every `DURATION`: 5, 500ms (default 2s or more, for at most 2 % of a core)", "s"),
			cli.WordFlag(&o.Sort, top.Orders(), "sort", "Sort by `ORDER`: cpu, mem, net, disk, restarts, age, name (default cpu)"),
			cli.BoolFlag(&o.once, "once", "Print one page, or with -o a document, and exit"),
		}, o.Flags()...),
		GC:    50, // a view may run all day: less memory is worth the CPU time
		Check: o.check,
		RunOn: o.run,
	}
}

// leastEvery is the minimum interval between samples.
const leastEvery = 100 * time.Millisecond

func (o *topOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if c.Args().Len() > 1 { // kubectl has `top pod NAME`: the hint names the verbs for it
		return &cli.UsageError{Text: "top takes one namespace at most, got " + cli.Quote(strings.Join(c.Args().Slice(), " ")),
			Next: "`crishim statsp` shows what pods use, `crishim exec CONTAINER ps` the processes of a container"}
	}
	if err := o.View.Check(in); err != nil {
		return err
	}
	if namespace := c.Args().First(); namespace != "" {
		if o.filter.In.Namespace != "" {
			return cli.Usagef("the namespace is given twice: %s and --namespace", cli.Quote(namespace))
		}
		o.filter.In.Namespace = namespace
	}
	if c.IsSet("seconds") && o.Every < leastEvery {
		return cli.Invalid("seconds", o.Every, "must be at least 100ms")
	}
	if o.FormatFlag != "" && !o.once {
		return cli.Usagef("-o and --template need --once")
	}
	term, _ := in.LookupEnv("TERM")
	switch {
	case o.once:
	case !in.InTerminal || !in.OutTerminal:
		return &cli.UsageError{Text: "top needs a terminal", Next: "--once prints one page"}
	case term == "dumb":
		return &cli.UsageError{Text: "top needs a terminal that places text, and TERM is dumb", Next: "--once prints one page"}
	}
	return nil
}

func (o *topOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	if !o.once {
		return top.Run(ctx, o.in, conn, &o.filter, o.Options)
	}
	o.Every = cmp.Or(o.in.StatsSecond, o.Every)
	model, err := top.Sample(ctx, o.in, conn, &o.filter, o.Options)
	if err != nil {
		return err
	}
	if o.Format.ForMachines() {
		return output.Top(printer.Out, model.Rows(), o.View.Options)
	}
	return top.Print(printer, model)
}
