package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type eventsOptions struct {
	pod          string
	since, until time.Time // zero: from now on, and without end
	view         cli.View
}

func NewEvents(in *cli.Invocation) *cli.Verb {
	o := &eventsOptions{}
	return &cli.Verb{
		Usage: "Stream events of containers",
		Description: cli.WithExamples("Prints each event as a line on a terminal or with -o table, else as a document. Runs until it is interrupted or the runtime ends, or with --until up to that time. Docker remembers its last few hundred events, which --since shows first.",
			"crishim events -o table", "crishim events -o table --columns time,event,name,exit", "crishim events --pod web -o jsonl", "crishim events --since 10m"),
		Flags: append(o.view.TableFlags(output.EventColumns),
			cli.StringFlag(&o.pod, "pod", "Filter by `POD`: name, namespace/name or ID", "p"),
			cli.Typed(&o.since, func(text string) (time.Time, error) { return parseTime(in.Now(), text) }, "since", "Show past events since `TIME` first: a duration such as 5m, a time such as 2026-01-02T15:04:05Z, or seconds since 1970"),
			cli.Typed(&o.until, func(text string) (time.Time, error) { return parseTime(in.Now(), text) }, "until", "With --since: show only events before `TIME` and exit; 0s is now")),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *eventsOptions) check(in *cli.Invocation, c *urfave.Context) error {
	err := o.view.CheckAlone(in, c)
	switch now := in.Now(); {
	case err != nil:
	case o.until.IsZero():
	case o.since.IsZero():
		err = cli.Usagef("--until needs --since")
	case o.until.After(now):
		err = cli.Usagef("invalid --until: must not be in the future")
	}
	if o.view.Format.Kind == output.Default && (len(o.view.Columns) > 0 || in.OutTerminal && !in.Compat) {
		o.view.Format.Kind = output.Table
	}
	return err
}

func (o *eventsOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	podID := ""
	if o.pod != "" {
		pod, err := conn.Pod(ctx, o.pod, client.NewestAttempt)
		if err != nil {
			return err
		}
		podID = pod.GetId()
	}
	var past []*runtimeapi.ContainerEventResponse
	var events grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	var err error
	if o.until.IsZero() { // open before the journal is read, so that no event is lost in between
		if events, err = conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}); err != nil {
			return err
		}
	}
	if !o.since.IsZero() {
		if past, err = pastEvents(ctx, conn, o.since, o.until); err != nil {
			return err
		}
	}
	known, err := o.known(ctx, conn) // after the stream is open, so that no container is missed
	if err != nil {
		return err
	}
	table := output.NewEvents(printer.Out, o.view.Options)
	table.Known(known)
	shown := map[string]bool{}
	for _, event := range past {
		if podID != "" && event.GetPodSandboxStatus().GetId() != podID {
			continue
		}
		if err := table.Write(event); err != nil {
			return err
		}
		shown[eventKey(event)] = true
	}
	for events != nil {
		event, err := events.Recv()
		switch {
		case ctx.Err() != nil:
			return cli.Join(cli.ErrFollowed, table.Header())
		case errors.Is(err, io.EOF):
			return table.Header()
		case err != nil:
			return err
		case podID != "" && event.GetPodSandboxStatus().GetId() != podID, shown[eventKey(event)]:
			continue
		}
		if err := table.Write(event); err != nil {
			return err
		}
	}
	return table.Header()
}

// known returns the existing containers, whose names the table shows.
func (o *eventsOptions) known(ctx context.Context, conn *client.Conn) ([]*runtimeapi.Container, error) {
	if o.view.Format.ForMachines() || o.view.Format.Kind == output.Default {
		return nil, nil
	}
	res, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err == nil && output.LacksPodNames(res.GetContainers(), o.view.Options) {
		o.view.Pods, err = cli.PodNames(ctx, conn)
	}
	if ctx.Err() != nil {
		return nil, cli.ErrFollowed
	}
	return res.GetContainers(), err
}

// eventKey identifies an event that is both in the journal and in the stream.
func eventKey(e *runtimeapi.ContainerEventResponse) string {
	return fmt.Sprint(e.GetContainerId(), e.GetContainerEventType(), e.GetCreatedAt())
}

// eventTypes maps the engine's actions to CRI's events.
var eventTypes = map[string]runtimeapi.ContainerEventType{
	"create": runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, "start": runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
	"die": runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, "destroy": runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
}

// pastEvents returns the events of the engine's journal. Each status has only the fields that the journal records.
func pastEvents(ctx context.Context, conn *client.Conn, since, until time.Time) (past []*runtimeapi.ContainerEventResponse, err error) {
	journal, err := conn.EngineEvents(ctx, since, until)
	if errors.Is(err, client.ErrNotDockershim) {
		return nil, cli.WithHint(fmt.Errorf("%s at %s keeps no journal, so events before now are not known", conn.Version.GetRuntimeName(), conn.RuntimeEndpoint),
			"without --since events are shown from now on; `crishim describe POD` has those of apply and sync")
	}
	oom := map[string]bool{}
	for _, e := range journal {
		kind, known := eventTypes[e.Action]
		if oom[e.ID] = e.Action == "oom" || e.Action != "start" && oom[e.ID]; !known {
			continue
		}
		one := &runtimeapi.ContainerEventResponse{ContainerId: e.ID, ContainerEventType: kind, CreatedAt: e.Time.UnixNano(), PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: e.SandboxID, Metadata: &runtimeapi.PodSandboxMetadata{Name: e.Pod, Namespace: e.Namespace, Uid: e.PodUID},
		}}
		if e.Container != "" {
			c := &runtimeapi.ContainerStatus{Id: e.ID, Metadata: &runtimeapi.ContainerMetadata{Name: e.Container, Attempt: e.Attempt}, State: runtimeapi.ContainerState_CONTAINER_RUNNING}
			switch e.Action {
			case "create":
				c.State = runtimeapi.ContainerState_CONTAINER_CREATED
			case "die", "destroy":
				c.State, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, e.ExitCode
				if c.Reason = "Error"; oom[e.ID] {
					c.Reason = "OOMKilled"
				} else if e.ExitCode == 0 {
					c.Reason = "Completed"
				}
				if e.Action == "destroy" {
					c.Reason = ""
				}
			}
			one.ContainersStatuses = append(one.ContainersStatuses, c)
		}
		past = append(past, one)
	}
	return past, err
}
