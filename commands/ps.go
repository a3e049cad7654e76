package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newPs lists containers: the running ones, or what filters choose.
func newPs(env *Env) *cli.Command {
	return &cli.Command{
		Name:  "ps",
		Usage: "list containers",
		Description: describe("Running containers, newest first; --all, --state, --latest and --last choose others.",
			"crishim ps", "crishim ps -a --name '^web'", "crishim ps -q --pod web", "crishim ps --all -o json"),
		Flags: append(append(listFlags(output.ContainerColumns), containerFilterFlags()...),
			&cli.StringFlag{Name: "id", Usage: "containers whose id begins with `ID`"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "more columns, as -o wide"},
			&cli.BoolFlag{Name: "resolve-image-path", Aliases: []string{"r"}, Usage: "show an image's name instead of its id"},
		),
		Action: action(env, psOptionsOf, runPs),
	}
}

type psOptions struct {
	filter       containerFilter
	resolveImage bool
	output       output.Options
}

func psOptionsOf(env *Env, c *cli.Context) (o psOptions, err error) {
	if err = noArgs(c); err != nil {
		return o, err
	}
	if o.filter, err = readContainerFilter(c); err != nil {
		return o, err
	}
	o.resolveImage = c.Bool("resolve-image-path")
	o.output, err = readListFormat(env, c, output.ContainerColumns)
	return o, err
}

func runPs(ctx context.Context, env *Env, o psOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	containers, err := o.filter.list(ctx, conn)
	if err != nil {
		return err
	}
	if o.resolveImage {
		if err := resolveImages(ctx, conn, containers); err != nil {
			return err
		}
	}
	if !env.compat && output.NeedsPods(containers, o.output) {
		if o.output.Pods, err = podNames(ctx, conn); err != nil {
			return err
		}
	}
	return output.Containers(env.Out, &runtimeapi.ListContainersResponse{Containers: containers}, o.output)
}

// resolveImages puts names where containers only know ids, with one call for
// all of them.
func resolveImages(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container) error {
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, image := range res.GetImages() {
		if tags := append(image.GetRepoTags(), image.GetRepoDigests()...); len(tags) > 0 {
			names[image.GetId()] = tags[0]
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

// podNames gives the names of all sandboxes by id, for containers that were
// made without the kubelet's labels.
func podNames(ctx context.Context, conn *client.Conn) (map[string]*runtimeapi.PodSandboxMetadata, error) {
	res, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	names := make(map[string]*runtimeapi.PodSandboxMetadata, len(res.GetItems()))
	for _, pod := range res.GetItems() {
		names[pod.GetId()] = pod.GetMetadata()
	}
	return names, nil
}
