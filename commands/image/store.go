package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/client/loopback"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/progress"
	"github.com/crishim/crishim/internal/imagefile"
)

// store reads and writes the images of a runtime.
type store interface {
	// save calls write with images that are readable until write returns.
	save(ctx context.Context, images []string, o imagefile.Options, write func([]imagefile.Image) error) error
	// load stores images, and returns them with their names in the runtime.
	load(ctx context.Context, images []imagefile.Image) ([]imagefile.Image, error)
}

func openStore(ctx context.Context, conn *client.Conn) store {
	if conn.IsDockershim(ctx) {
		return shimStore{conn}
	}
	if s, ok := containerd.Open(ctx, conn.ImageClientConn()); ok {
		return containerdStore{s, conn}
	}
	return pullStore{conn}
}

// shimStore is the engine behind crishim's dockershim.
type shimStore struct{ conn *client.Conn }

func (s shimStore) save(ctx context.Context, images []string, o imagefile.Options, write func([]imagefile.Image) error) error {
	stream, err := s.conn.SaveImages(ctx, images)
	if err != nil {
		return err
	}
	defer stream.Close()
	o.Trusted = true
	archive, err := imagefile.Open(ctx, stream, o)
	if err != nil {
		return err
	}
	defer archive.Close()
	return write(archive.Images)
}

func (s shimStore) load(ctx context.Context, images []imagefile.Image) ([]imagefile.Image, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(imagefile.Write(w, imagefile.Docker, images)) }()
	defer r.Close()
	return images, s.conn.LoadImages(ctx, r)
}

type containerdStore struct {
	store *containerd.Store
	conn  *client.Conn
}

func (s containerdStore) save(ctx context.Context, images []string, o imagefile.Options, write func([]imagefile.Image) error) error {
	list, err := s.store.Images(ctx, images, o.Platform, o.Watch)
	if errors.Is(err, imagefile.ErrMissing) {
		err = cli.WithHint(err, "containerd drops layers once they are unpacked where its configuration has discard_unpacked_layers; `crishim pull` gets them again")
	}
	if err != nil {
		return err
	}
	return write(list)
}

// load waits until CRI knows the images: containerd's CRI plugin reads them after an event.
func (s containerdStore) load(ctx context.Context, images []imagefile.Image) ([]imagefile.Image, error) {
	if err := s.store.Load(ctx, images); err != nil {
		return nil, err
	}
	own := s.store.Platforms(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("the images are stored, and CRI does not list them after 10 s"))
	defer cancel()
	for _, image := range images {
		if !image.RunsOn(own) { // CRI does not list images of other platforms
			continue
		}
		for _, name := range append([]string{image.ID()}, image.Names...) {
			for {
				res, err := s.conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
				if err == nil && res.GetImage().GetId() == image.ID() {
					break
				}
				if err := cli.Sleep(ctx, 20*time.Millisecond); err != nil {
					return images, err
				}
			}
		}
	}
	return images, nil
}

// pullStore is a runtime that offers only CRI. It pulls from a registry that crishim serves until the command ends.
type pullStore struct{ conn *client.Conn }

func (s pullStore) save(context.Context, []string, imagefile.Options, func([]imagefile.Image) error) error {
	return cli.WithHint(fmt.Errorf("%s has no call that reads images", s.runtime()), "its own tool saves them, such as `podman save` or skopeo for CRI-O")
}

func (s pullStore) runtime() string {
	return cmp.Or(s.conn.Version.GetRuntimeName(), s.conn.ImageEndpoint)
}

func (s pullStore) load(ctx context.Context, images []imagefile.Image) ([]imagefile.Image, error) {
	if !strings.HasPrefix(s.conn.ImageEndpoint, "unix://") {
		return nil, cli.WithHint(fmt.Errorf("%s can only pull, and from %s it does not reach a registry here", s.runtime(), s.conn.ImageEndpoint), "run crishim on its machine")
	}
	return loopback.Load(ctx, images, func(ctx context.Context, ref, password string) error {
		_, err := s.conn.Image.PullImage(ctx, &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: ref}, Auth: &runtimeapi.AuthConfig{Username: loopback.User, Password: password},
		})
		if err != nil && ctx.Err() == nil {
			err = cli.WithHint(err, "%s pulls it from a registry of this command, which has no TLS. It must allow that for 127.0.0.1: for CRI-O, insecure = true in registries.conf", s.runtime())
		}
		return err
	})
}

type platformFlag struct {
	text string
	want *v1.Platform // nil: any
}

func (p *platformFlag) flag(what string) urfave.Flag {
	return cli.StringFlag(&p.text, "platform", what+" `OS/ARCH` (default all platforms)")
}

func (p *platformFlag) check() (err error) {
	if p.text != "" {
		if p.want, err = imagefile.ParsePlatform(p.text); err != nil {
			return cli.Invalid("platform", p.text, err.Error())
		}
	}
	return nil
}

// display shows the progress of a copy.
type display struct {
	display *progress.Display // nil: nothing is shown
	shown   *progress.Pull
}

func showing(printer *cli.Printer, doing, what string, quiet bool) *display {
	if quiet || printer.Compat {
		return &display{}
	}
	d := progress.Start(printer.Progress())
	return &display{display: d, shown: d.Add(doing, what)}
}

func (d *display) close() {
	if d.display != nil {
		d.display.Close()
	}
}

// watch reports the bytes of each layer.
func (d *display) watch(l v1.Descriptor, r io.ReadCloser) io.ReadCloser {
	if d.display == nil {
		return r
	}
	return &shownLayer{ReadCloser: r, report: func(n int64) {
		status := progress.StatusCopying
		if n == l.Size {
			status = progress.StatusCopied
		}
		d.shown.Report(client.PullProgress{Layer: l.Digest.Hex[:12], Status: status, Current: n, Total: l.Size})
	}}
}

type shownLayer struct {
	io.ReadCloser
	report func(n int64)
	n      int64
}

func (l *shownLayer) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	l.n += int64(n)
	l.report(l.n)
	return n, err
}
