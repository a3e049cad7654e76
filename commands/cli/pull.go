package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/auth"
	"github.com/crishim/crishim/commands/cli/progress"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/output"
)

// PullOptions are the options of verbs that may pull.
type PullOptions struct {
	creds, encoded, User string
	fromStdin            bool
	authFile             string
	plugins              CredentialPlugins
	lookupEnv            func(string) (string, bool)
	timeout              time.Duration
	With, without        bool // --with-pull, --no-pull

	auth      *runtimeapi.AuthConfig // nil to look it up
	IfMissing bool
	Retries   int
	Progress  bool
	Display   *progress.Display // nil: each pull has its own
}

// Flags returns the flags about registries.
func (o *PullOptions) Flags() []urfave.Flag {
	return append([]urfave.Flag{
		StringFlag(&o.creds, "creds", "Log in to the registry as `USER[:PASSWORD]` (env CRICTL_CREDS)"),
		StringFlag(&o.encoded, "auth", "Log in to the registry with `BASE64`, the encoded user:password (env CRICTL_AUTH)"),
		StringFlag(&o.User, "username", "Log in to the registry as `USER`, and ask for the password", "u"),
		BoolFlag(&o.fromStdin, "password-stdin", "Read the password from stdin"),
		StringFlag(&o.authFile, "authfile", "Read credentials from `FILE` instead of DOCKER_AUTH_CONFIG and ~/.docker/config.json"),
		DurationFlag(&o.timeout, "pull-timeout", "Timeout of a pull: 90, 90s, 5m (env CRICTL_PULL_TIMEOUT, default no limit)", "pt"),
	}, o.plugins.Flags()...)
}

// ChoiceFlags returns --with-pull and --no-pull, which override the default in the config file.
func (o *PullOptions) ChoiceFlags() []urfave.Flag {
	return []urfave.Flag{
		BoolFlag(&o.With, "with-pull", "Pull the image first"),
		BoolFlag(&o.without, "no-pull", "Do not pull the image"),
	}
}

// Wanted reports whether to pull; usual is the config file's default.
func (o *PullOptions) Wanted(usual bool) bool { return o.With || usual && !o.without }

// Check validates the flags and reads the credentials of flags or environment. It asks for the password if only a user is
// given, or reads it from stdin with --password-stdin. Pull reads the files of docker.
func (o *PullOptions) Check(in *Invocation, c *urfave.Context) (err error) {
	if o.With && o.without {
		return Usagef("--with-pull and --no-pull contradict each other")
	}
	o.Progress, o.lookupEnv = in.ErrTerminal && !in.Compat, in.LookupEnv
	if text := in.getenv("CRICTL_PULL_TIMEOUT"); text != "" && !c.IsSet("pull-timeout") {
		if o.timeout, err = parseDuration(text); err != nil {
			return Usagef("invalid CRICTL_PULL_TIMEOUT %s: %v", Quote(text), err)
		}
	}
	if err = o.plugins.Load(in); err == nil {
		o.auth, err = o.credentials(in, c)
	}
	return err
}

// CredentialPlugins are the kubelet's exec credential providers, by the kubelet's flags.
type CredentialPlugins struct {
	config, dir string
	*auth.Plugins
}

// Flags returns the flags.
func (p *CredentialPlugins) Flags() []urfave.Flag {
	return []urfave.Flag{
		StringFlag(&p.config, "image-credential-provider-config", "Get registry credentials from the kubelet credential plugins that `FILE` configures"),
		StringFlag(&p.dir, "image-credential-provider-bin-dir", "Look for credential plugins in `DIR`"),
	}
}

// Load reads the configuration if a flag names it.
func (p *CredentialPlugins) Load(in *Invocation) (err error) {
	if (p.config == "") != (p.dir == "") {
		return Usagef("--image-credential-provider-config and --image-credential-provider-bin-dir belong together")
	}
	if p.config != "" {
		if p.Plugins, err = auth.LoadPlugins(p.config, p.dir, in.Now, func(err error) { in.Printer.Warn("%w", err) }); err != nil {
			return BadInput(err)
		}
	}
	return nil
}

// credentials returns the credentials of the flags or the environment, or nil.
func (o *PullOptions) credentials(in *Invocation, c *urfave.Context) (*runtimeapi.AuthConfig, error) {
	creds, encoded := o.creds, o.encoded
	switch {
	case creds != "" && encoded+o.User != "" || encoded != "" && o.User != "":
		return nil, Usagef("--creds, --auth and --username: choose one")
	case creds+encoded+o.User == "":
		creds, encoded = in.getenv("CRICTL_CREDS"), in.getenv("CRICTL_AUTH")
	}
	if encoded != "" && !o.fromStdin {
		config, err := auth.ParseBase64(encoded)
		if err != nil {
			return nil, Usagef("--auth: %v", err)
		}
		return config, nil
	}
	creds = cmp.Or(o.User, creds)
	user, password, found := strings.Cut(creds, ":")
	switch {
	case creds == "" && o.fromStdin:
		return nil, Usagef("--password-stdin needs --username or --creds")
	case creds == "":
		return nil, nil
	case user == "":
		return nil, Usagef("the registry credentials have no user name")
	case o.fromStdin || !found:
		var err error
		if password, err = o.password(c.Context, in.Process, user); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.AuthConfig{Username: user, Password: password}, nil
}

// password reads a password from standard input, or asks for it.
func (o *PullOptions) password(ctx context.Context, p *Process, user string) (string, error) {
	if o.fromStdin {
		text, err := bounded.ReadAll(p.In, bounded.Config)
		return strings.TrimRight(string(text), "\r\n"), err
	}
	if p.AskPassword == nil || !p.InTerminal {
		return "", Usagef("no password for %s: give it with --password-stdin", Quote(user))
	}
	return p.AskPassword(ctx, "Password for "+output.Sanitize(user)+": ")
}

// Pull pulls one image and returns its reference.
func (o *PullOptions) Pull(ctx context.Context, p *Printer, conn *client.Conn, spec *runtimeapi.ImageSpec, pod *runtimeapi.PodSandboxConfig) (string, error) {
	if o.IfMissing {
		res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
		if err == nil && res.GetImage() != nil {
			return res.GetImage().GetId(), nil
		}
	}
	auth, err := o.authFor(ctx, p, spec.GetImage())
	if err != nil {
		return "", err
	}
	for attempt := 0; ; attempt++ {
		ref, err := o.pullOnce(ctx, p, conn, &runtimeapi.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: pod})
		if err == nil {
			return ref, nil
		}
		if attempt >= o.Retries || ctx.Err() != nil || IsGone(err) {
			return "", About("pull "+spec.GetImage(), pullError(err, auth))
		}
		p.Warn("pull %s: %w; trying again", spec.GetImage(), err)
		if err := Sleep(ctx, time.Second<<min(attempt, 4)); err != nil {
			return "", err
		}
	}
}

// pullError adds the next step if the registry refuses the login.
func pullError(err error, auth *runtimeapi.AuthConfig) error {
	var named *client.Error
	if errors.As(err, &named) && strings.HasPrefix(named.Error(), "pull image: ") { // Pull replaces this prefix with "pull IMAGE: "
		err = &worded{err, strings.TrimPrefix(named.Error(), "pull image: ")}
	}
	switch {
	case !client.IsRefused(err):
		return err
	case auth == nil:
		return WithHint(err, "if the image is private, log in with `docker login`, or give --creds or --authfile")
	}
	return WithHint(err, "are user and password right, and may this user read the image? `docker login`, --creds and --authfile give others")
}

// worded replaces an error's text and keeps the error.
type worded struct {
	error
	text string
}

func (e *worded) Error() string { return e.text }

func (e *worded) Unwrap() error { return e.error }

// PullFor pulls the image of a container and the images that it mounts.
func (o *PullOptions) PullFor(ctx context.Context, p *Printer, conn *client.Conn, container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) error {
	images := []*runtimeapi.ImageSpec{container.GetImage()}
	for _, mount := range container.GetMounts() {
		if mount.GetImage().GetImage() != "" {
			images = append(images, mount.GetImage())
		}
	}
	for _, image := range images {
		if _, err := o.Pull(ctx, p, conn, image, pod); err != nil {
			return err
		}
	}
	return nil
}

// authFor returns the credentials for an image; nil is anonymous. Flags win over the files of docker and
// podman.
func (o *PullOptions) authFor(ctx context.Context, p *Printer, image string) (*runtimeapi.AuthConfig, error) {
	if o.auth != nil {
		return o.auth, nil
	}
	if o.timeout > 0 { // a credential helper may hang, like a registry
		limited, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("--pull-timeout of %s is over", o.timeout))
		defer cancel()
		ctx = limited
	}
	return auth.Lookup(ctx, image, auth.Options{AuthFile: o.authFile, LookupEnv: o.lookupEnv, Plugins: o.plugins.Plugins, Stderr: p.Err})
}

func (o *PullOptions) limit() grpc.CallOption { return client.Timeout(o.timeout, "--pull-timeout") }

// pullOnce pulls, with progress if o.Progress is set.
func (o *PullOptions) pullOnce(ctx context.Context, p *Printer, conn *client.Conn, r *runtimeapi.PullImageRequest) (string, error) {
	if !o.Progress {
		res, err := conn.Image.PullImage(ctx, r, o.limit())
		return res.GetImageRef(), err
	}
	display := o.Display
	if display == nil {
		display = progress.Start(p.Progress())
		defer display.Close()
	}
	return pullShowing(ctx, conn, r, display, o.limit())
}

// pullShowing pulls and shows the progress. Our own shim reports each layer. For other runtimes only the elapsed time
// and the growth of the images are known.
func pullShowing(ctx context.Context, conn *client.Conn, r *runtimeapi.PullImageRequest, display *progress.Display, opts ...grpc.CallOption) (string, error) {
	shown := display.Add("pulling", r.GetImage().GetImage())
	defer shown.Close()
	if r.GetImage().GetRuntimeHandler() == "" { // crishim's own PullImage request has no runtime handler
		id, err := conn.PullReporting(ctx, r.GetImage().GetImage(), r.GetAuth(), shown.Report, opts...)
		if !errors.Is(err, client.ErrNotDockershim) {
			return id, err
		}
	}
	display.Stored(func(ctx context.Context) (used int64, err error) { // the disk usage of the images
		res, err := conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		for _, fs := range res.GetImageFilesystems() {
			used += int64(fs.GetUsedBytes().GetValue())
		}
		return used, err
	})
	res, err := conn.Image.PullImage(ctx, r, opts...)
	return res.GetImageRef(), err
}

// PullInLines returns a function that pulls an image and writes the progress as lines, like progressLines.
func PullInLines(p *Printer, conn *client.Conn) func(context.Context, string, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return func(ctx context.Context, image string, auth *runtimeapi.AuthConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
		r := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}, Auth: auth, SandboxConfig: pod}
		display := progress.Start(p.progressLines())
		defer display.Close()
		return pullShowing(ctx, conn, r, display)
	}
}
