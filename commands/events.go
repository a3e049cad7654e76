package commands

import (
	"context"
	"errors"
	"io"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newEvents follows what happens to containers.
func newEvents(env *Env) *cli.Command {
	return &cli.Command{
		Name:    "events",
		Aliases: []string{"event"},
		Usage:   "follow what happens to containers",
		Description: describe("One document per event, or with -o table one line. Goes on until interrupted or until the runtime ends.",
			"crishim events -o table", "crishim events -o table --columns time,event,name,exit", "crishim events --pod web -o jsonl"),
		Flags: append(append(formatFlags(), tableFlags(output.EventColumns)...),
			&cli.StringFlag{Name: "pod", Aliases: []string{"p"}, Usage: "only events of `POD`: name, namespace/name or id"}),
		Action: action(env, eventsOptionsOf, runEvents),
	}
}

type eventsOptions struct {
	pod    string
	output output.Options
}

func eventsOptionsOf(env *Env, c *cli.Context) (o eventsOptions, err error) {
	if err = noArgs(c); err != nil {
		return o, err
	}
	o.pod = c.String("pod")
	o.output, err = readListFormat(env, c, output.EventColumns)
	if len(o.output.Columns) > 0 && o.output.Format.Kind == output.Default {
		o.output.Format.Kind = output.Table
	}
	return o, err
}

func runEvents(ctx context.Context, env *Env, o eventsOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	podID := ""
	if o.pod != "" {
		pod, err := conn.Pod(ctx, o.pod, client.Any)
		if err != nil {
			return err
		}
		podID = pod.GetId()
	}
	events, err := conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	table, err := output.NewEvents(env.Out, o.output)
	if err != nil {
		return err
	}
	for {
		event, err := events.Recv()
		switch {
		case ctx.Err() != nil:
			return errFollowed
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case podID != "" && event.GetPodSandboxStatus().GetId() != podID:
			continue
		}
		if err := table.Write(event); err != nil {
			return err
		}
	}
}
