package pod

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	urfave "github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type podsOptions struct {
	filter cli.Filter
	view   cli.View
	watch  bool
	dirs   pod.Dirs
}

func NewPods(in *cli.Invocation) *cli.Verb {
	o := &podsOptions{dirs: in.PodDirs()}
	return &cli.Verb{
		Usage: "List pods",
		Description: cli.WithExamples("Lists pod sandboxes in every state, newest first. READY counts running containers, or ready ones in pods of sync and apply; ? means that nothing probes them now. STATE is the state of the pod, SANDBOX the state of its sandbox. "+
			"CRI does not mark init containers: a container that succeeded before another was created is not counted.",
			"crishim pods", "crishim pods --state ready -q", "crishim pods -n kube-system -o wide"),
		Flags: slices.Concat(o.view.ListFlags(output.PodColumns, "IDs"), o.filter.PodFlags(in), []urfave.Flag{
			o.filter.DockerPodFlag(),
			cli.StringFlag(&o.filter.ID, "id", "Filter by the beginning of the `ID`"),
			o.view.WideFlag(),
			cli.WatchFlag(&o.watch),
		}),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *podsOptions) check(in *cli.Invocation, c *urfave.Context) error {
	return cmp.Or(cli.ArgCount(c, 0, 0), o.filter.Check(false), o.view.Check(in))
}

func (o *podsOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o = new(*o) // a copy, because several nodes run at once and share o
	if !o.watch {
		pods, err := o.list(ctx, printer, conn)
		if err != nil {
			return err
		}
		err = output.Pods(printer.Out, &runtimeapi.ListPodSandboxResponse{Items: pods}, o.view.Options)
		if len(pods) == 0 && o.view.ForPeople() && err == nil {
			o.filter.HintLast(ctx, printer, conn)
		}
		called := func(p *runtimeapi.PodSandbox) cli.ContainerPath {
			return cli.ContainerPath{Namespace: p.GetMetadata().GetNamespace(), Pod: p.GetMetadata().GetName()}
		}
		if failed := output.FailedPod(pods, o.view.Options); failed != nil && err == nil {
			cli.PointToDescribe(printer, called(failed), failed.GetId())
		} else if p := output.UnprobedPod(pods, o.view.Options); p != nil && err == nil {
			printer.Note("hint: pod %s is not probed any more; `crishim describe %s` probes it once", called(p).PodRef(), shellwords.Quote(called(p).PodRef()))
		}
		return err
	}
	changes := output.NewChanges(printer.Out)
	return cli.Watch(ctx, conn, func(ctx context.Context) error {
		pods, err := o.list(ctx, printer, conn)
		if err != nil {
			return err
		}
		return changes.Pods(pods, o.view.Options)
	})
}

// list lists the pods. If columns need the containers, it lists them concurrently and then adds the details that columns
// need. It then also adds pods of sync and apply without a sandbox, and invalid manifests, unless --last or --latest is
// given.
func (o *podsOptions) list(ctx context.Context, printer *cli.Printer, conn *client.Conn) (pods []*runtimeapi.PodSandbox, err error) {
	needs := output.PodNeeds(o.view.Options)
	var containers *runtimeapi.ListContainersResponse
	lists, listing := errgroup.WithContext(ctx)
	lists.Go(func() (err error) {
		pods, err = o.filter.Pods(listing, conn)
		return err
	})
	if needs.Dead {
		lists.Go(func() (err error) {
			containers, err = conn.Runtime.ListContainers(listing, &runtimeapi.ListContainersRequest{})
			return err
		})
	}
	if err := lists.Wait(); err != nil {
		return nil, err
	}
	o.view.Now = printer.Now() // read after the list call, so that no age is negative
	o.view.Members = map[string][]*runtimeapi.Container{}
	for _, p := range pods {
		o.view.Members[p.GetId()] = nil
	}
	var dead []*runtimeapi.Container
	for _, c := range containers.GetContainers() {
		members, listed := o.view.Members[c.GetPodSandboxId()]
		if !listed {
			continue
		}
		o.view.Members[c.GetPodSandboxId()] = append(members, c)
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			dead = append(dead, c)
		}
	}
	if needs.Dead {
		o.view.Managed = cli.ManagedPods(printer, o.dirs, conn, pods, nil)
	}
	if needs.Dead && o.filter.Last() == 0 {
		unmade, known := cli.PodsWithoutSandbox(ctx, printer, o.dirs, conn, pods, &o.filter)
		maps.Copy(o.view.Managed, known)
		pods = append(pods, unmade...)
	}
	var failed, podsFailed error
	var asked sync.WaitGroup
	asked.Go(func() { o.view.Statuses, failed = cli.ContainerDetails(ctx, conn, dead, false) })
	if needs.Sandboxes {
		ready := slices.DeleteFunc(slices.Clone(pods), func(p *runtimeapi.PodSandbox) bool {
			return p.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY
		})
		asked.Go(func() {
			o.view.Sandboxes, podsFailed = cli.PodDetails(ctx, conn, ready, (*runtimeapi.PodSandbox).GetId, false)
		})
	}
	asked.Wait()
	return pods, cmp.Or(cli.DetailsMissing(ctx, printer, "some containers", failed), cli.DetailsMissing(ctx, printer, "some pods", podsFailed))
}
