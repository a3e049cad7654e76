package commands

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

type rmOptions struct {
	removal
	keepLogs bool
}

// newRm removes containers.
func newRm(env *Env) *cli.Command {
	o := &rmOptions{}
	return &cli.Command{
		Name:      "rm",
		Usage:     "remove containers",
		ArgsUsage: "CONTAINER...",
		Description: describe("Removes containers. One that runs is refused unless --force stops it first. Log files stay.",
			"crishim rm web", "crishim rm -f web", "crishim rm --all --force --dry-run"),
		Flags: []cli.Flag{
			o.forceFlag("stop running containers first"),
			o.allFlag("every container"),
			selectorFlag(&o.selector),
			attemptFlag(&o.attempt),
			boolFlag(&o.keepLogs, "keep-logs", "leave the log files (they stay in any case but with --compat=crictl)", "k"),
			o.dryRunFlag("removed"),
		},
		Action: env.connected(o.check, o.run),
	}
}

func (o *rmOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	containers, err := o.containers(ctx, conn, client.Any, "")
	runs := func(c containerTarget) bool {
		return c.thing.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return batch[*runtimeapi.Container]{
		what: "container", doing: "removing",
		would: func(c containerTarget) string { return "Would remove " + c.called() },
		skip: func(env *Env, c containerTarget) (bool, error) {
			if o.force || !runs(c) {
				return false, nil
			}
			return true, o.refuse(env, "container", "", c.called(), "crishim stop %s stops it, crishim rm -f %[1]s does both")
		},
		do: func(env *Env, c containerTarget) error {
			logs, grace := "", defaultGrace
			if env.compat {
				grace = 0
				if !o.keepLogs {
					res, _ := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.thing.GetId()})
					logs = res.GetStatus().GetLogPath() // "" where the runtime does not tell
				}
			}
			if err := removeByForce(ctx, conn, c.thing.GetId(), runs(c), grace); err != nil {
				return err
			}
			if err := removeLogs(logs); err != nil {
				return err
			}
			return env.say("%s", c.ref)
		},
	}.run(env, &o.targets, containers, err)
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
