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

type eventsOptions struct {
	pod  string
	view view
}

// newEvents follows what happens to containers.
func newEvents(env *Env) *cli.Command {
	o := &eventsOptions{}
	return &cli.Command{
		Name:    "events",
		Aliases: []string{"event"},
		Usage:   "follow what happens to containers",
		Description: describe("One document per event, or with -o table one line. Goes on until interrupted or until the runtime ends.",
			"crishim events -o table", "crishim events -o table --columns time,event,name,exit", "crishim events --pod web -o jsonl"),
		Flags: append(o.view.tableFlags(output.EventColumns),
			stringFlag(&o.pod, "pod", "only events of `POD`: name, namespace/name or id", "p")),
		Action: env.connected(o.check, o.run),
	}
}

func (o *eventsOptions) check(env *Env, c *cli.Context) error {
	err := o.view.checkAlone(env, c)
	if len(o.view.Columns) > 0 && o.view.Format.Kind == output.Default {
		o.view.Format.Kind = output.Table
	}
	return err
}

func (o *eventsOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
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
	table, err := output.NewEvents(env.Out, o.view.Options)
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
