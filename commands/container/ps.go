package container

import (
	"cmp"
	"context"
	"slices"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type psOptions struct {
	filter       cli.Filter
	view         cli.View
	resolveImage bool
	watch        bool
	dirs         pod.Dirs
}

func NewPs(in *cli.Invocation) *cli.Verb {
	o := &psOptions{dirs: in.PodDirs()}
	return &cli.Verb{
		Usage: "List containers",
		Description: cli.WithExamples("Lists running containers, newest first; --all, --state, --latest and --last choose others. The STATE of an ended container includes its exit status, reason and age.",
			"crishim ps", "crishim ps -a", "crishim ps --filter status=exited", "crishim ps -a --name '^web'", "crishim ps -a --columns name,exit,reason,finished", "crishim ps -q --pod web", "crishim ps --all -o json"),
		Flags: slices.Concat(o.view.ListFlags(output.ContainerColumns, "IDs"), o.filter.ContainerFlags(in), []urfave.Flag{
			o.filter.DockerContainerFlag(),
			cli.StringFlag(&o.filter.ID, "id", "Filter by the beginning of the `ID`"),
			o.view.WideFlag(),
			cli.BoolFlag(&o.resolveImage, "resolve-image-path", "Show the names of images instead of their IDs", "r"),
			cli.WatchFlag(&o.watch),
		}),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *psOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.filter.Crictl = in.Compat
	return cmp.Or(cli.ArgCount(c, 0, 0), o.filter.Check(true), o.view.Check(in))
}

func (o *psOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o = new(*o) // a copy, because several nodes run at once and share o
	if !o.watch {
		containers, err := o.list(ctx, printer, conn)
		if err != nil {
			return err
		}
		err = output.Containers(printer.Out, &runtimeapi.ListContainersResponse{Containers: containers}, o.view.Options)
		if failed := output.FailedContainer(containers, o.view.Options); failed != nil && err == nil {
			named := cli.NamePods(ctx, conn, []*runtimeapi.Container{failed})
			cli.PointToDescribe(printer, cli.ContainerPathOf(named[0]), failed.GetId())
		}
		if len(containers) == 0 && o.view.ForPeople() && err == nil {
			o.filter.HintLast(ctx, printer, conn)
			if name := o.filter.Name.Regexp; name != nil {
				printer.Note("hint: --all has containers that have ended, too; `crishim pods --name %s` looks for pods", shellwords.Quote(name.String()))
			}
		}
		return err
	}
	changes := output.NewChanges(printer.Out)
	return cli.Watch(ctx, conn, func(ctx context.Context) error {
		containers, err := o.list(ctx, printer, conn)
		if err != nil {
			return err
		}
		return changes.Containers(containers, o.view.Options)
	})
}

func (o *psOptions) list(ctx context.Context, printer *cli.Printer, conn *client.Conn) ([]*runtimeapi.Container, error) {
	containers, err := o.filter.Containers(ctx, conn)
	if err != nil {
		return nil, err
	}
	o.view.Now = printer.Now()                                                // read after the list call, so that no age is negative
	if o.resolveImage || output.LacksImageNames(containers, o.view.Options) { // a kubelet passes image ids to the runtime, so image names are missing
		if err := resolveImages(ctx, conn, containers); err != nil && o.resolveImage {
			return nil, err
		}
	}
	if !printer.Compat && output.LacksPodNames(containers, o.view.Options) {
		if o.view.Pods, err = cli.PodNames(ctx, conn); err != nil {
			return nil, err
		}
	}
	return containers, o.addDetails(ctx, printer, conn, containers)
}

// addDetails asks for the statuses and sandboxes that the columns need. A plain table needs no status of a running
// container.
func (o *psOptions) addDetails(ctx context.Context, printer *cli.Printer, conn *client.Conn, containers []*runtimeapi.Container) error {
	needs := output.ContainerNeeds(o.view.Options)
	var failed, podsFailed error
	if needs.Dead || needs.Statuses {
		o.view.Managed = cli.ManagedPods(printer, o.dirs, conn, nil, slices.DeleteFunc(slices.Clone(containers), func(c *runtimeapi.Container) bool {
			return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		}))
		some := containers
		if !needs.Statuses {
			some = slices.DeleteFunc(slices.Clone(containers), func(c *runtimeapi.Container) bool {
				return c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED
			})
		}
		o.view.Statuses, failed = cli.ContainerDetails(ctx, conn, some, needs.Verbose)
	}
	if needs.Sandboxes {
		o.view.Sandboxes, podsFailed = cli.PodDetails(ctx, conn, containers, (*runtimeapi.Container).GetPodSandboxId, true)
	}
	return cmp.Or(cli.DetailsMissing(ctx, printer, "some containers", failed), cli.DetailsMissing(ctx, printer, "some pods", podsFailed))
}

// resolveImages replaces the ids of images by their names.
func resolveImages(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container) error {
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, image := range res.GetImages() {
		if name := cli.ImageName(image); name != image.GetId() {
			names[image.GetId()] = name
		}
	}
	for _, c := range containers {
		for _, id := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()} {
			if name, ok := names[id]; ok {
				c.Image = &runtimeapi.ImageSpec{Image: name}
				break
			}
		}
	}
	return nil
}
