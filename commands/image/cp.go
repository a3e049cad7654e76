package image

import (
	"context"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/imagefile"
)

type cpOptions struct {
	from, to  string // endpoints
	images    []string
	all       bool
	platforms platformFlag
	quiet     bool
}

// newCp returns what copies images from one runtime to another, for people who move from dockershim or cri-dockerd to
// containerd, or back.
func newCp(env *cli.Env) *urfave.Command {
	o := &cpOptions{}
	return &urfave.Command{
		Name:      "cp",
		Usage:     "copy images from one runtime to another",
		ArgsUsage: "ENDPOINT ENDPOINT [IMAGE...]",
		Description: cli.WithExamples("From the first endpoint to the second one, which are written as for -r. Nothing is copied of an image that is there already, and no\n"+
			"layer of the same digest: a Docker before 25 does not tell those, and containerd keeps compressed what it pulls. An image keeps its id,\n"+
			"and between containerds its digest; Docker keeps no manifest to take one of.",
			"crishim image cp docker:// unix:///run/containerd/containerd.sock busybox", "crishim image cp --all docker:// ssh://root@node2/run/containerd/containerd.sock"),
		Flags: []urfave.Flag{
			cli.BoolFlag(&o.all, "all", "copy all images that are not pinned", "a"),
			o.platforms.flag("copy only what is for"),
			cli.BoolFlag(&o.quiet, "quiet", "print the images' ids only", "q"),
		},
		Action: env.Offline(o.check, o.run),
	}
}

func (o *cpOptions) check(_ *cli.Env, c *urfave.Context) error {
	if err := cli.ArgCount(c, 2, -1); err != nil {
		return err
	}
	o.from, o.to, o.images = c.Args().Get(0), c.Args().Get(1), c.Args().Slice()[2:]
	for _, endpoint := range []string{o.from, o.to} {
		if _, err := client.ParseEndpoint(endpoint); err != nil {
			return cli.Usagef("%v", err)
		}
	}
	switch {
	case o.from == o.to:
		return cli.Usagef("image cp copies between two endpoints, and both are %s", cli.Quote(o.from))
	case o.all && len(o.images) > 0:
		return cli.Usagef("--all takes no images, got %s", cli.Quote(o.images[0]))
	case !o.all && len(o.images) == 0:
		return cli.Usagef("image cp needs IMAGE..., or --all")
	}
	return o.platforms.check()
}

func (o *cpOptions) run(ctx context.Context, env *cli.Env) error {
	from, err := dial(ctx, env, o.from)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := dial(ctx, env, o.to)
	if err != nil {
		return err
	}
	defer to.Close()
	if s, ok := openStore(ctx, from).(pullStore); ok { // before the first of many images
		return s.save(ctx, nil, copyOptions{}, nil)
	}
	images, err := o.list(ctx, from)
	var failed []error
	for _, image := range images {
		if err := o.copy(ctx, env, from, to, image); err != nil {
			failed = append(failed, cli.About(image.title(), err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return cli.Join(append([]error{err}, failed...)...)
}

func dial(ctx context.Context, env *cli.Env, endpoint string) (*client.Conn, error) {
	options, err := env.ClientOptions(false)
	if err != nil {
		return nil, err
	}
	options.RuntimeEndpoint, options.ImageEndpoint, options.Images = endpoint, "", false
	return client.Connect(ctx, options)
}

// copied is an image of the source: its id and the names that are copied.
type copied struct {
	id    string
	names []string
}

func (i copied) title() string {
	if len(i.names) == 0 {
		return i.id
	}
	return imagefile.Familiar(i.names[0])
}

// list returns the images to copy, each once.
func (o *cpOptions) list(ctx context.Context, conn *client.Conn) (list []copied, err error) {
	if !o.all {
		err := cli.Each(o.images, func(text string) error {
			refs, err := findImages(ctx, conn, []string{text})
			if err != nil {
				return err
			}
			res, err := cli.ImageStatus(ctx, conn, text, false, false)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(list, func(i copied) bool { return i.id == res.GetImage().GetId() })
			if i < 0 {
				list, i = append(list, copied{id: res.GetImage().GetId()}), len(list)
			}
			if refs[0] != list[i].id && !slices.Contains(list[i].names, refs[0]) {
				list[i].names = append(list[i].names, refs[0])
			}
			return nil
		})
		return list, err
	}
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	for _, image := range res.GetImages() {
		if image.GetPinned() {
			continue
		}
		one := copied{id: image.GetId()}
		for _, tag := range image.GetRepoTags() {
			if name, err := imagefile.Name(tag); err == nil {
				one.names = append(one.names, name)
			}
		}
		list = append(list, one)
	}
	return list, err
}

func (o *cpOptions) copy(ctx context.Context, env *cli.Env, from, to *client.Conn, image copied) error {
	names := slices.Clone(image.names)
	for _, name := range image.names {
		res, err := to.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		if err != nil {
			return err
		}
		if res.GetImage().GetId() == image.id {
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		}
	}
	if len(image.names) > 0 && len(names) == 0 {
		return o.say(env, "Already there", image.names, image.id)
	}
	refs := names
	if len(refs) == 0 {
		refs = []string{image.id}
	}
	shown := showing(env, "copying", image.title(), o.quiet)
	defer shown.close()
	var copies []imagefile.Image
	err := openStore(ctx, from).save(ctx, refs, copyOptions{o.platforms.want, shown.watch}, func(images []imagefile.Image) (err error) {
		copies, err = openStore(ctx, to).load(ctx, images)
		return err
	})
	shown.close()
	if err != nil {
		return err
	}
	if len(image.names) == 0 {
		names = nil
	}
	digest := image.id
	for _, c := range copies {
		if len(c.Names) > 0 && strings.HasPrefix(c.Names[0], "127.0.0.1:") { // of a runtime that can only pull
			names = c.Names
		}
		digest = c.Target.Digest.String()
	}
	return o.say(env, "Copied image", names, digest)
}

func (o *cpOptions) say(env *cli.Env, what string, names []string, digest string) error {
	if o.quiet {
		return env.Say("%s", digest)
	}
	if len(names) == 0 {
		return env.Say("%s ID: %s", what, digest)
	}
	return cli.Each(names, func(name string) error { return env.Say("%s: %s (%s)", what, imagefile.Familiar(name), digest) })
}
