package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

type rmOptions struct {
	cli.Removal
	keepLogs bool
}

// NewRm removes containers.
func NewRm(env *cli.Env) *urfave.Command {
	o := &rmOptions{}
	return &urfave.Command{
		Name:      "rm",
		Usage:     "remove containers",
		ArgsUsage: "CONTAINER...",
		Description: cli.WithExamples("Removes containers. One that runs is refused unless --force stops it first. Log files stay.",
			"crishim rm web", "crishim rm -f web", "crishim rm --all --force --dry-run"),
		Flags: []urfave.Flag{
			o.ForceFlag("stop running containers first"),
			o.AllFlag("every container"),
			cli.SelectorFlag(&o.Selector),
			cli.AttemptFlag(&o.Attempt),
			cli.BoolFlag(&o.keepLogs, "keep-logs", "leave the log files (they stay in any case but with --compat=crictl)", "k"),
			o.DryRunFlag("removed"),
		},
		Action: env.Connected(o.Check, o.run),
	}
}

func (o *rmOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.Any, "")
	runs := func(c cli.ContainerTarget) bool {
		return c.Object.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return cli.Batch[*runtimeapi.Container]{
		What: "container", Doing: "removing",
		Would: func(c cli.ContainerTarget) string { return "Would remove " + c.Called() },
		Skip: func(env *cli.Env, c cli.ContainerTarget) (bool, error) {
			if o.Force || !runs(c) {
				return false, nil
			}
			return true, o.Refuse(env, "container", "", c.Called(), "crishim stop %s stops it, crishim rm -f %[1]s does both")
		},
		Do: func(env *cli.Env, c cli.ContainerTarget) error {
			logs, grace := "", defaultGrace
			if env.Compat {
				grace = 0
				if !o.keepLogs {
					res, _ := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Object.GetId()})
					logs = res.GetStatus().GetLogPath() // "" where the runtime does not tell
				}
			}
			if err := removeByForce(ctx, conn, c.Object.GetId(), runs(c), grace); err != nil {
				return err
			}
			if err := removeLogs(logs); err != nil {
				return err
			}
			return env.Say("%s", c.Ref)
		},
	}.Run(env, &o.Targets, containers, err)
}

// removeLogs takes a log file and what rotation made of it away, as crictl does.
func removeLogs(path string) error {
	if path == "" {
		return nil
	}
	files, err := filepath.Glob(globMeta.ReplaceAllString(path, `\$0`) + ".*")
	errs := []error{err}
	for _, file := range append(files, path) {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// globMeta matches what has a meaning in the pattern of a Glob.
var globMeta = regexp.MustCompile(`[*?[\\]`)
