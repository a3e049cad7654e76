package commands

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/output"
)

// newDescribe shows all that is known of pods, as kubectl describe pod would.
func newDescribe(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "describe",
		Usage:     "show pods with their containers, mounts, events and last log lines",
		ArgsUsage: "[NAMESPACE/]NAME...",
		Description: describe("Tells what a pod is and why it does not run. Pods of apply and sync are known with their manifest and their events; of others, what runs is shown.",
			"crishim describe web", "crishim describe -o yaml team/web"),
		Flags:  formatFlags(),
		Action: action(env, describeOptionsOf, runDescribe),
	}
}

type describeOptions struct {
	names  []string
	output output.Options
}

func describeOptionsOf(env *Env, c *cli.Context) (o describeOptions, err error) {
	if o.output, err = readFormat(env, c); err != nil {
		return o, err
	}
	o.names = c.Args().Slice()
	return o, argCount(c, 1, -1)
}

func runDescribe(ctx context.Context, env *Env, o describeOptions) error {
	r, err := env.podRuntime(ctx, podRuntimeOptions{})
	if err != nil {
		return err
	}
	defer r.close()
	pods, err := r.GetPods(ctx, true)
	if err != nil {
		return err
	}
	return each(o.names, func(name string) error {
		found := podsNamed(pods, name)
		if len(found) == 0 {
			return noPodNamed(name)
		}
		for i, p := range found {
			d, err := r.Describe(ctx, p)
			if err != nil {
				return about(name, err)
			}
			if i > 0 {
				fmt.Fprintln(env.Out)
			}
			if o.output.Format.Kind == output.Name {
				err = env.say("%s", p.FullName())
			} else {
				err = output.Value(env.Out, d, o.output, func(w io.Writer, _ output.Options) error { return writeDescription(w, d, env) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func writeDescription(w io.Writer, d *kuberuntime.Description, env *Env) error {
	page := &page{now: env.Now()}
	page.pod(d)
	for _, c := range d.View.Containers {
		page.container(d, c)
	}
	page.events(d.Events)
	_, err := io.WriteString(w, page.text.String())
	return err
}
