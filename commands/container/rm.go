package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/glob"
	"github.com/crishim/crishim/internal/kube"
)

type rmOptions struct {
	cli.RemoveOptions
	keepLogs bool
}

func NewRm(in *cli.Invocation) *cli.Verb {
	o := &rmOptions{}
	return &cli.Verb{
		Usage:     "Remove containers",
		ArgsUsage: "CONTAINER...",
		Args:      cli.CompleteContainers(),
		Description: cli.WithExamples("Removes containers. A running container is refused unless --force kills it first. Log files are kept. If --force removes the last container of a pod of run, the pod and its logs are removed, too.",
			"crishim rm web", "crishim rm -f web", "crishim rm --all --force --dry-run"),
		Flags: []urfave.Flag{
			o.ForceFlag("Kill running containers first"),
			o.AllFlag("Remove all containers"),
			cli.SelectorFlag(&o.Selector, "l"),
			o.NamespaceFlag(),
			cli.AttemptFlag(&o.Attempt),
			cli.BoolFlag(&o.keepLogs, "keep-logs", "With --compat=crictl: keep the log files", "k"),
			o.DryRunFlag("removed"),
		},
		Check: o.Check,
		RunOn: o.run,
	}
}

func (o *rmOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.NewestAttempt, "")
	runs := func(c cli.ContainerTarget) bool {
		return c.Object.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return cli.Batch[*runtimeapi.Container]{
		What: "container", Doing: "removing",
		Would: func(c cli.ContainerTarget) string { return "Would remove " + c.Called() },
		Skip: func(printer *cli.Printer, c cli.ContainerTarget) (bool, error) {
			if o.Force || !runs(c) {
				return false, nil
			}
			return true, o.Refuse(printer, "container", "", c.Called(), "`crishim stop %s` stops it, `crishim rm -f %[1]s` kills and removes it")
		},
		Do: func(printer *cli.Printer, c cli.ContainerTarget) error {
			logs := ""
			if printer.Compat && !o.keepLogs && conn.Remote() == "" {
				res, _ := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Object.GetId()})
				logs = res.GetStatus().GetLogPath() // "" if it is not known
			}
			// Without grace, as docker and crictl do.
			err := removeByForce(ctx, conn, c.Object.GetId(), runs(c), 0)
			if err != nil {
				return err
			}
			if o.Force && !printer.Compat {
				err = removeEmptyPod(ctx, conn, c.Object.GetPodSandboxId())
			}
			return errors.Join(err, removeLogs(logs))
		},
		Done: "%s",
	}.Run(printer, &o.Targets, containers, err)
}

// removeByForce stops a running container and removes it. A missing container counts as removed.
func removeByForce(ctx context.Context, conn *client.Conn, id string, running bool, grace time.Duration) error {
	if running {
		_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace.Seconds())})
		if cli.UnlessGone(err) != nil {
			return err
		}
	}
	_, err := conn.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return cli.UnlessGone(err)
}

// removeEmptyPod removes a sandbox that crishim run created, if it has no containers left.
func removeEmptyPod(ctx context.Context, conn *client.Conn, id string) error {
	pod, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil || pod.GetStatus().GetAnnotations()[kube.AnnotationRun] == "" {
		return cli.UnlessGone(err)
	}
	left, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
	if err != nil || slices.ContainsFunc(left.GetContainers(), func(c *runtimeapi.Container) bool { return c.GetPodSandboxId() == id }) {
		return err
	}
	if _, err := conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); cli.UnlessGone(err) != nil {
		return err
	}
	if _, err = conn.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); cli.UnlessGone(err) != nil {
		return err
	}
	return cli.RemoveOwnLogs(conn, pod.GetStatus().GetMetadata())
}

// removeLogs removes a log file and its rotations, as crictl does.
func removeLogs(path string) error {
	if path == "" {
		return nil
	}
	files, err := filepath.Glob(glob.Escape(path) + ".*")
	errs := []error{err}
	for _, file := range append(files, path) {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
