package container

import (
	"context"
	"errors"
	"io"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type eventsOptions struct {
	pod  string
	view cli.View
}

func NewEvents(env *cli.Env) *urfave.Command {
	o := &eventsOptions{}
	return &urfave.Command{
		Name:    "events",
		Aliases: []string{"event"},
		Usage:   "stream events of containers",
		Description: cli.WithExamples("One line per event on a terminal and with -o table, else one document. Runs until it is interrupted or the runtime ends.",
			"crishim events -o table", "crishim events -o table --columns time,event,name,exit", "crishim events --pod web -o jsonl"),
		Flags: append(o.view.TableFlags(output.EventColumns),
			cli.StringFlag(&o.pod, "pod", "show only events of `POD`: name, namespace/name or id", "p")),
		Action: env.Connected(o.check, o.run),
	}
}

func (o *eventsOptions) check(env *cli.Env, c *urfave.Context) error {
	err := o.view.CheckAlone(env, c)
	if o.view.Format.Kind == output.Default && (len(o.view.Columns) > 0 || env.OutTerminal && !env.Compat) {
		o.view.Format.Kind = output.Table
	}
	return err
}

func (o *eventsOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	var known *runtimeapi.ListContainersResponse
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
	if !o.view.Format.ForMachines() && o.view.Format.Kind != output.Default {
		// After the stream is open, so that no container is missed.
		known, err = conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err == nil && output.NeedsPods(known.GetContainers(), o.view.Options) {
			o.view.Pods, err = cli.PodNames(ctx, conn)
		}
		switch {
		case ctx.Err() != nil:
			return cli.ErrFollowed
		case err != nil:
			return err
		}
	}
	table, err := output.NewEvents(env.Out, o.view.Options)
	if err != nil {
		return err
	}
	table.Known(known.GetContainers())
	for {
		event, err := events.Recv()
		switch {
		case ctx.Err() != nil:
			return cli.ErrFollowed
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
