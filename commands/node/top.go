package node

import (
	"cmp"
	"context"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/node/top"
)

type topOptions struct {
	once bool
	top.Options
}

// NewTop returns the verb that shows all pods and what they use, as it changes.
func NewTop(env *cli.Env) *cli.Verb {
	o := &topOptions{}
	return &cli.Verb{
		Name:  "top",
		Usage: "show pods and containers with their resource usage, live",
		Description: cli.WithExamples("A tree of pods and containers with state, restarts, CPU, memory, network and disk rates, and plots of the last minutes for the selected row.\n"+
			"Keys follow logs, open a shell, describe, say why, stop, sort and filter; ? shows them. Network is the pod's. - is not known to the runtime.",
			"crishim top", "crishim top --sort mem", "crishim top --once"),
		Flags: []urfave.Flag{
			cli.DurationFlag(&o.Every, "seconds", "time between two samples: 5, 500ms (default 2s or more, for at most 1/100 of a core)", "s"),
			cli.WordFlag(&o.Sort, top.Orders(), "sort", "sort by `ORDER`: cpu, mem, net, disk, restarts, age, name (default cpu)"),
			cli.BoolFlag(&o.once, "once", "print one page and exit"),
		},
		Action: env.Connected(o.check, o.run),
	}
}

// leastEvery is how short the time between two samples may be.
const leastEvery = 100 * time.Millisecond

func (o *topOptions) check(env *cli.Env, c *urfave.Context) error {
	if c.Args().Present() { // docker's and kubectl's top name something
		return &cli.UsageError{Text: "top takes no arguments, got " + cli.Quote(c.Args().First()),
			Next: "`crishim statsp` shows what pods use, `crishim exec CONTAINER ps` the processes of a container"}
	}
	if c.IsSet("seconds") && o.Every < leastEvery {
		return cli.Invalid("seconds", o.Every, "must be at least 100ms")
	}
	term, _ := env.LookupEnv("TERM")
	if !o.once && (!env.InTerminal || !env.OutTerminal || term == "dumb") {
		return &cli.UsageError{Text: "top needs a terminal", Next: "--once prints one page"}
	}
	return nil
}

func (o *topOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	if !o.once {
		return top.Run(ctx, env, conn, o.Options)
	}
	if env.StatsSecond != 0 {
		o.Every = cmp.Or(env.StatsSecond, o.Every)
	}
	return top.Once(ctx, env, conn, o.Options)
}
