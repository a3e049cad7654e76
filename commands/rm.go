package commands

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newRm removes containers.
func newRm(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "rm",
		Usage:     "remove containers",
		ArgsUsage: "CONTAINER...",
		Description: describe("Removes containers. One that runs is refused unless --force stops it first. Log files stay.",
			"crishim rm web", "crishim rm -f web", "crishim rm --all --force --dry-run"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "stop a container that runs first"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "every container"},
			selectorFlag(),
			attemptFlag(),
			&cli.BoolFlag{Name: "keep-logs", Aliases: []string{"k"}, Usage: "leave the log files (they stay in any case but with --compat=crictl)"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be removed"},
		},
		Action: action(env, removalOf, runRm),
	}
}

func runRm(ctx context.Context, env *Env, o removal) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	containers, failed := o.choice.containers(ctx, conn, client.Any, nil)
	if failed == nil {
		o.choice.warnOfNone(env, "container", len(containers))
	}
	if o.choice.all && !o.dryRun && failed == nil {
		announce(env, "removing", "container", containers)
	}
	return join(failed, inParallel(env, containers, func(env *Env, c target[*runtimeapi.Container]) error {
		return removeContainer(ctx, env, conn, o, c)
	}))
}

func removeContainer(ctx context.Context, env *Env, conn *client.Conn, o removal, c target[*runtimeapi.Container]) error {
	running := c.thing.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	switch {
	case running && !o.force && o.choice.listed() && o.dryRun:
		return env.say("Would leave %s: it still runs, --force stops it first", c.called())
	case running && !o.force && o.choice.listed():
		return fmt.Errorf("container %s still runs; --force stops it first", c.called())
	case running && !o.force:
		return withHint(fmt.Errorf("container %s still runs", c.ref), "crishim stop %s stops it, crishim rm -f %s does both", c.ref, c.ref)
	case o.dryRun:
		return env.say("Would remove %s", c.called())
	}
	logs := ""
	if env.compat && !o.keepLogs {
		logs = logPathOf(ctx, conn, c.thing.GetId())
	}
	if err := removeByForce(ctx, conn, c.thing.GetId(), running, o.grace(env)); err != nil {
		return about(c.called(), err)
	}
	if err := removeLogs(logs); err != nil {
		return about(c.called(), err)
	}
	return env.say("%s", c.ref)
}

// grace is how long --force lets a container end by itself.
func (o removal) grace(env *Env) int64 {
	if env.compat {
		return 0
	}
	return int64(defaultGrace.Seconds())
}

// removeByForce stops a container that runs and removes it; one that is gone
// already is as good as removed.
func removeByForce(ctx context.Context, conn *client.Conn, id string, running bool, grace int64) error {
	if running {
		_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace})
		if err != nil && !isGone(err) {
			return err
		}
	}
	_, err := conn.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if isGone(err) {
		return nil
	}
	return err
}

func logPathOf(ctx context.Context, conn *client.Conn, id string) string {
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return ""
	}
	return res.GetStatus().GetLogPath()
}

// removeLogs takes a log file and what rotation made of it away, as crictl does.
func removeLogs(path string) error {
	if path == "" {
		return nil
	}
	rotated, err := filepath.Glob(globQuote(path) + ".*")
	errs := []error{err}
	for _, file := range append(rotated, path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func globQuote(path string) string {
	quoted := make([]byte, 0, len(path))
	for i := range len(path) {
		if c := path[i]; c == '*' || c == '?' || c == '[' || c == '\\' {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, path[i])
	}
	return string(quoted)
}
