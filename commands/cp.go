package commands

import (
	"context"
	"strings"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/archive"
)

// newCp copies files between a container and here. The CRI has no call for
// that: our own shim's private service does the other half; elsewhere a tar in
// the container, or the kernel where there is none.
func newCp(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "cp",
		Usage:     "copy files from or to a container",
		ArgsUsage: "CONTAINER:PATH|PATH|- CONTAINER:PATH|PATH|-",
		Description: describe("One side is a container's. As with docker cp: into a directory that exists, else under the new name; PATH/. is\n"+
			"what a directory holds; - is a tar stream. On Docker the container may be stopped. On other runtimes it must run, and\n"+
			"have a tar unless crishim is root on its machine.",
			"crishim cp web:/etc/hosts .", "crishim cp page.html web:/www/index.html", "crishim cp web:/var/log - | tar -tv",
			"tar -c . | crishim cp - web:/data"),
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "archive", Aliases: []string{"a"}, Usage: "keep owner and group"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "do not say what is left out"},
		}, transportFlags()...),
		Action: action(env, cpOptionsOf, runCp),
	}
}

type cpOptions struct {
	container string // whose path one of the two is
	from, to  string // without the container
	upload    bool
	owner     bool
	quiet     bool
	stream    stream.Options
}

func cpOptionsOf(env *Env, c *cli.Context) (o cpOptions, err error) {
	if err = argCount(c, 2, 2); err != nil {
		return o, err
	}
	o.owner, o.quiet = c.Bool("archive"), c.Bool("quiet")
	if o.stream, err = readTransport(env, c); err != nil {
		return o, err
	}
	o.stream.DetachKeys = ""
	fromContainer, from, fromRemote := splitPath(c.Args().Get(0))
	toContainer, to, toRemote := splitPath(c.Args().Get(1))
	o.container, o.from, o.to, o.upload = fromContainer+toContainer, from, to, toRemote
	switch {
	case fromRemote == toRemote:
		return o, usagef("cp copies between a container and here: exactly one side must be CONTAINER:PATH")
	case from == "" || to == "":
		return o, usagef("cp needs a path on both sides")
	}
	return o, nil
}

// splitPath takes CONTAINER:PATH apart. What begins with / or . is local, even
// with a colon in it.
func splitPath(arg string) (container, path string, remote bool) {
	if strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return "", arg, false
	}
	container, path, remote = strings.Cut(arg, ":")
	if !remote || container == "" {
		return "", arg, false
	}
	return container, path, true
}

func runCp(ctx context.Context, env *Env, o cpOptions) error {
	var source localSource
	var err error
	if o.upload {
		if source, err = findSource(o.from); err != nil {
			return err
		}
	}
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	p := &copier{cpOptions: o, env: env, conn: conn}
	want, own := client.Running, conn.HasPrivate(ctx)
	if own {
		want = client.PreferRunning
	}
	if p.container, err = conn.Container(ctx, o.container, want); err != nil {
		return err
	}
	if p.files, err = p.openFiles(ctx, own); err != nil {
		return err
	}
	defer p.files.close()
	if o.upload {
		return p.upload(ctx, source)
	}
	return p.download(ctx)
}

// copier is one copy under way.
type copier struct {
	cpOptions
	env       *Env
	conn      *client.Conn
	container *runtimeapi.Container
	files     containerFiles
}

// archiveOptions are what packing and unpacking here need to know.
func (p *copier) archiveOptions() archive.Options {
	var o archive.Options
	if p.owner {
		o.Owner = archive.KeepOwner
	}
	if !p.quiet {
		o.Skipped = func(name, why string) { p.env.warn("%s is left out: %s", name, why) }
	}
	return o
}
