package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type runOptions struct {
	oneLine
	container *runtimeapi.ContainerConfig
	pod       *runtimeapi.PodSandboxConfig
	podRef    string // an existing pod
	handler   string
	pull      cli.PullOptions
	withPull  bool
	cancel    time.Duration
	dirs      pod.Dirs
	detach    bool
	remove    bool
	dryRun    bool
	session   cli.SessionOptions
}

func NewRun(in *cli.Invocation) *cli.Verb {
	o := newRunOptions()
	o.dirs = in.PodDirs()
	return &cli.Verb{
		Usage:     "Create and run a container in a new pod",
		ArgsUsage: "IMAGE [COMMAND [ARG...]] | CONTAINER-CONFIG POD-CONFIG",
		Args:      cli.First(cli.AnyOf(cli.CompleteImages, cli.CompleteFiles), cli.CompleteFiles),
		Description: cli.WithExamples("Runs an image in the foreground and exits with the status of the command, unless --detach is given. "+
			"Runs two configuration files, or one file with two documents, in the background as crictl does, and prints the container ID. "+
			"If something fails, the container and the pod are removed. If a file has the name of the image, --image selects the image and ./NAME the file.",
			"crishim run --rm busybox echo hello", "crishim run --rm -it busybox sh", "crishim run --rm -e NAME=value -v /srv:/data busybox env", "crishim run -d --name web -p 8080:80 busybox httpd -f", "crishim run container.json pod.json"),
		Subcommands: []cli.Entry{cli.NewSchema("run", "container")},
		// -r is --runtime, as in runp, and -u is --user.
		Flags: slices.Concat(o.oneLineFlags(in.LookupEnv), cli.WithoutShortNames(o.session.Flags(), "transport"), cli.WithoutShortNames(o.pull.Flags(), "username"), o.pull.ChoiceFlags(), []urfave.Flag{
			cli.StringFlag(&o.handler, "runtime", "Use the runtime `HANDLER` for the pod", "r"),
			cli.CancelFlag(&o.cancel),
			cli.DryRunFlag(&o.dryRun),
		}),
		Check: o.check,
		Run:   o.run,
	}
}

func (o *runOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	args := c.Args().Slice()
	if o.image == "" {
		if err = cli.ArgCount(c, 1, -1); err != nil {
			return err
		}
	}
	fromFiles := in.IsCrictlRun()
	if fromFiles && o.user != "" {
		o.pull.User = o.user
	}
	if err = o.pull.Check(in, c); err != nil {
		return err
	}
	o.pull.IfMissing = !o.pull.With && !(in.Compat && fromFiles)
	if !fromFiles {
		if err = o.session.Check(in); err != nil {
			return err
		}
		o.session.DropTTYWithoutTerminal(in.Printer)
		return o.completeOneLine(c, args)
	}
	o.detach = true
	switch {
	case len(args) == 1:
		o.container, o.pod, err = cli.ReadContainerAndPodFile(in.In, args[0])
		return err
	case args[0] == "-" && args[1] == "-":
		return cli.Usagef("only one of the two files can be standard input")
	}
	if o.container, _, err = cli.ReadContainerFile(in.In, args[0]); err == nil {
		o.pod, err = cli.ReadPodFile(in.In, args[1])
	}
	return err
}

func (o *runOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	config, err := connector.Config()
	if err != nil {
		return err
	}
	o.withPull = o.pull.Wanted(!config.DisablePullOnRun)
	if o.podRef == "" {
		cli.SetPodDefaults(o.pod)
		o.labelAsKubelet()
	}
	if size := stream.WindowSize(o.session.Streams(printer)); o.image != "" && size != (stream.Size{}) {
		o.container.Annotations[api.AnnotationConsoleSize] = fmt.Sprintf("%dx%d", size.Height, size.Width)
	}
	if o.dryRun {
		completeContainer(o.container, o.pod)
		return cli.PrintRequest(printer.Out,
			&runtimeapi.RunPodSandboxRequest{Config: o.pod, RuntimeHandler: o.handler},
			&runtimeapi.CreateContainerRequest{Config: o.container})
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := &runner{runOptions: o, Printer: printer, conn: conn}
	if err := r.start(ctx); err != nil {
		return cli.Join(r.explain(cannotRun(err)), r.cleanUp(ctx, true))
	}
	if o.detach {
		return printer.Say("%s", r.containerID)
	}
	// SIGPIPE, as from head, ends the run, but only after the clean-up.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	err = r.foreground(ctx)
	if errors.Is(err, stream.ErrDetached) {
		return r.detached(err)
	}
	return cli.Join(err, r.cleanUp(ctx, o.remove))
}

type runner struct {
	*runOptions
	*cli.Printer
	conn *client.Conn

	podID, containerID string
	madePod            bool
}

// start pulls the image first, so that a failed pull leaves no pod behind.
func (r *runner) start(ctx context.Context) (err error) {
	if r.name != "" && r.podRef == "" {
		taken, err := podNamed(ctx, r.conn, r.pod.GetMetadata())
		if err != nil {
			return err
		}
		if taken != nil {
			path := cli.PodPath(taken.GetMetadata())
			return cli.WithHint(fmt.Errorf("there is a pod %s already", cli.Quote(path)), "`crishim rmp -f %s` removes it", shellwords.Quote(path))
		}
	}
	if r.withPull {
		if err := r.pull.PullFor(ctx, r.Printer, r.conn, r.container, r.pod); err != nil {
			return err
		}
	}
	limit := cli.CancelTimeout(r.cancel)
	if r.podRef == "" {
		r.podID, err = cli.RunPod(ctx, r.conn, r.dirs, r.pod, r.handler, limit)
		r.madePod = r.podID != ""
	} else {
		err = r.joinPod(ctx)
	}
	if err != nil {
		return err
	}
	if r.containerID, err = createContainer(ctx, r.conn, r.podID, r.container, r.pod, limit); err != nil {
		return err
	}
	_, err = r.conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.containerID}, limit)
	return err
}

// podNamed returns a sandbox with the name and namespace of m, or nil.
func podNamed(ctx context.Context, conn *client.Conn, m *runtimeapi.PodSandboxMetadata) (*runtimeapi.PodSandbox, error) {
	pods, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	for _, p := range pods.GetItems() {
		if p.GetMetadata().GetName() == m.GetName() && p.GetMetadata().GetNamespace() == m.GetNamespace() {
			return p, nil
		}
	}
	return nil, err
}

func (r *runner) explain(err error) error {
	var missing *cli.StatusError
	if r.image == "" || !errors.As(err, &missing) || missing.Code != cli.ExitNotFound || slices.Contains(r.container.GetArgs(), "sh") {
		return err
	}
	return cli.WithHint(err, "`crishim run --rm -it %s sh` looks at what is in the image", shellwords.Quote(r.image))
}

// joinPod prepares the container for --pod.
func (r *runner) joinPod(ctx context.Context) error {
	pod, err := r.conn.Pod(ctx, r.podRef, client.RunningAttempt)
	if err != nil {
		return err
	}
	r.podID = pod.GetId()
	if r.pod, err = podConfigOf(ctx, r.conn, r.podID); err != nil {
		return err
	}
	r.labelAsKubelet()
	return completeAttempt(ctx, r.conn, pod, r.container)
}

// labelAsKubelet adds the kubelet's labels to a container from an image and to its new pod: tools find the pod of a
// container by these labels. Configurations from files are sent unchanged.
func (o *runOptions) labelAsKubelet() {
	if o.image == "" {
		return
	}
	m := o.pod.GetMetadata()
	labels := map[string]string{kube.LabelPodName: m.GetName(), kube.LabelPodNamespace: m.GetNamespace(), kube.LabelPodUID: m.GetUid()}
	if o.podRef == "" {
		o.pod.Labels = maps.Clone(labels)
		maps.Copy(o.pod.Labels, o.labels)
	}
	labels[kube.LabelContainerName] = o.container.GetMetadata().GetName()
	maps.Copy(labels, o.labels)
	o.container.Labels = labels
}

func (r *runner) detached(err error) error {
	name := r.container.GetMetadata().GetName()
	if pod := r.pod.GetMetadata().GetName(); pod != name {
		name = pod + "/" + name
	}
	goesOn := fmt.Sprintf("%s goes on: `crishim attach -it %s` returns to it", name, shellwords.Quote(name))
	if r.remove {
		goesOn += ", and --rm no longer applies"
	}
	streams := r.session.Streams(r.Printer)
	streams.Err = r.Err
	return cli.Join(cli.NoteDetach(err, streams, goesOn), r.Say("%s", r.containerID))
}

const (
	// interruptGrace is the grace period of a container whose run is over.
	interruptGrace = 2 * time.Second
	// cleanUpTimeout bounds the clean-up, which ignores interrupts.
	cleanUpTimeout = time.Minute
)

// cleanUp removes the container, and its own pod. Without remove it only stops them.
func (r *runner) cleanUp(ctx context.Context, remove bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	var errs []error
	switch {
	case r.containerID == "":
	case remove:
		errs = append(errs, removeByForce(ctx, r.conn, r.containerID, true, interruptGrace))
	default:
		_, err := r.conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: r.containerID, Timeout: int64(interruptGrace.Seconds())})
		errs = append(errs, cli.UnlessGone(err))
	}
	if r.madePod {
		_, err := r.conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.podID})
		errs = append(errs, cli.UnlessGone(err))
	}
	if r.madePod && remove {
		_, err := r.conn.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.podID})
		if err = cli.UnlessGone(err); err == nil {
			err = cli.RemoveOwnLogs(r.conn, r.pod.GetMetadata())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
