package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/client/loopback"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/progress"
	"github.com/crishim/crishim/imagefile"
	"github.com/crishim/crishim/internal/gogc"
)

// store is where images are, as save and load see it.
type store interface {
	// save copies images into a sink.
	save(ctx context.Context, images []string, platforms platformFlag, sink imagefile.Sink) ([]imagefile.Image, error)
	// load calls copy with a sink that stores images.
	load(ctx context.Context, copy func(imagefile.Sink) ([]imagefile.Image, error)) ([]imagefile.Image, error)
}

// openStore finds how images get in and out of a runtime.
func openStore(ctx context.Context, conn *client.Conn) store {
	gogc.Set(gogc.Serve) // a copy takes long, and every piece of it is garbage at once
	if conn.IsDockershim(ctx) {
		return shimStore{conn: conn}
	}
	if s, ok := containerd.Open(ctx, conn.ImageClientConn()); ok {
		return containerdStore{s, conn}
	}
	return pullStore{conn}
}

// shimStore is the engine behind our own shim.
type shimStore struct {
	conn *client.Conn
	has  func(diffID digest.Digest) bool // see imagefile.Writer
}

func (s shimStore) save(ctx context.Context, images []string, platforms platformFlag, sink imagefile.Sink) ([]imagefile.Image, error) {
	archive, err := s.conn.SaveImages(ctx, images)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return imagefile.Read(ctx, archive, imagefile.ReadOptions{Platform: platforms.want, Trusted: true}, sink)
}

func (s shimStore) load(ctx context.Context, copy func(imagefile.Sink) ([]imagefile.Image, error)) ([]imagefile.Image, error) {
	r, w := io.Pipe()
	loaded := make(chan error, 1)
	go func() {
		err := s.conn.LoadImages(ctx, r)
		r.CloseWithError(cmp.Or(err, io.ErrClosedPipe))
		loaded <- err
	}()
	archive := imagefile.NewWriter(w, imagefile.Engine)
	archive.Has = s.has
	images, err := copy(archive)
	w.CloseWithError(err) // nil is the end of the archive
	refused := <-loaded
	if err == nil || refused != nil && errors.Is(err, refused) {
		err = refused
	}
	return images, err
}

// containerdStore is a containerd.
type containerdStore struct {
	store *containerd.Store
	conn  *client.Conn
}

func (s containerdStore) save(ctx context.Context, images []string, platforms platformFlag, sink imagefile.Sink) ([]imagefile.Image, error) {
	saved, err := s.store.Save(ctx, images, platforms.want, platforms.one, sink)
	var missing *imagefile.MissingError
	if errors.As(err, &missing) {
		err = cli.WithHint(err, "containerd drops layers once they are unpacked where its configuration has discard_unpacked_layers; `crishim pull` gets them again")
	}
	return saved, err
}

// load returns when CRI knows the images: its plugin reads them at an event.
func (s containerdStore) load(ctx context.Context, copy func(imagefile.Sink) ([]imagefile.Image, error)) ([]imagefile.Image, error) {
	images, err := s.store.Load(ctx, copy)
	if err != nil {
		return images, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("the images are stored, and CRI does not list them after 10 s"))
	defer cancel()
	for _, image := range images {
		for _, name := range append([]string{image.ID()}, image.Names...) {
			for {
				res, err := s.conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
				if err == nil && res.GetImage().GetId() == image.ID() {
					break
				}
				if err := cli.Pause(ctx, 20*time.Millisecond); err != nil {
					return images, context.Cause(ctx)
				}
			}
		}
	}
	return images, nil
}

// pullStore is a runtime that can do no more than CRI: it can pull, from a registry that is here for as long.
type pullStore struct{ conn *client.Conn }

func (s pullStore) save(context.Context, []string, platformFlag, imagefile.Sink) ([]imagefile.Image, error) {
	return nil, cli.WithHint(fmt.Errorf("%s has no call that reads images", s.runtime()), "its own tool saves them, such as `podman save` or skopeo for CRI-O")
}

func (s pullStore) runtime() string {
	return cmp.Or(s.conn.Version.GetRuntimeName(), s.conn.ImageEndpoint)
}

func (s pullStore) load(ctx context.Context, copy func(imagefile.Sink) ([]imagefile.Image, error)) ([]imagefile.Image, error) {
	if !strings.HasPrefix(s.conn.ImageEndpoint, "unix://") {
		return nil, cli.WithHint(fmt.Errorf("%s can only pull, and from %s it does not reach a registry here", s.runtime(), s.conn.ImageEndpoint), "run crishim on its machine")
	}
	return loopback.Load(ctx, copy, func(ctx context.Context, ref, password string) error {
		_, err := s.conn.Image.PullImage(ctx, &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: ref}, Auth: &runtimeapi.AuthConfig{Username: loopback.User, Password: password},
		})
		if err != nil && ctx.Err() == nil {
			err = cli.WithHint(err, "%s pulls it from a registry of this command, which has no TLS. It must allow that for 127.0.0.1: for CRI-O, insecure = true in registries.conf", s.runtime())
		}
		return err
	})
}

// platformFlag is --platform.
type platformFlag struct {
	text string
	want func(*ocispec.Platform) bool
	one  bool // of several: what takes the images has room for one
}

func (p *platformFlag) flag(what string) urfave.Flag {
	return cli.StringFlag(&p.text, "platform", what+" `OS/ARCH` (default all platforms that are there)")
}

func (p *platformFlag) check() (err error) {
	p.want = imagefile.AnyPlatform
	if p.text != "" {
		if p.want, err = imagefile.ParsePlatform(p.text); err != nil {
			return cli.Invalid("platform", p.text, err.Error())
		}
	}
	return nil
}

// display shows how far a copy is.
type display struct {
	display *progress.Display // nil: nothing is shown
	shown   *progress.Pull
	once    sync.Once
}

func showing(env *cli.Env, doing, what string, quiet bool) *display {
	if quiet || env.Compat {
		return &display{}
	}
	d := progress.Start(env.ProgressOptions())
	return &display{display: d, shown: d.Copy(doing, what)}
}

func (d *display) close() {
	if d.display != nil {
		d.once.Do(d.display.Close)
	}
}

// sink reports the layers that go into another one.
func (d *display) sink(to imagefile.Sink) imagefile.Sink {
	if d.display == nil {
		return to
	}
	return &shownSink{Sink: to, report: d.shown.Report}
}

type shownSink struct {
	imagefile.Sink
	report func(client.PullProgress)
	layers int
}

func (s *shownSink) Layer(c *imagefile.Content) error {
	s.layers++
	name := strconv.Itoa(s.layers)
	if c.Digest != "" {
		name = c.Digest.Encoded()[:12]
	}
	r := &shownReader{r: c.Reader, report: func(status string, n int64) {
		s.report(client.PullProgress{Layer: name, Status: status, Current: n, Total: c.Size})
	}}
	c.Reader = r
	err := s.Sink.Layer(c)
	c.Reader = r.r
	switch {
	case err != nil:
	case r.n < c.Size:
		r.report(progress.StatusPresent, 0)
	default:
		r.report(progress.StatusCopied, r.n)
	}
	return err
}

type shownReader struct {
	r      io.Reader
	report func(status string, n int64)
	n      int64
}

func (r *shownReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.n += int64(n)
	r.report(progress.StatusCopying, r.n)
	return n, err
}
