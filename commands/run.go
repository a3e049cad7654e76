package commands

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

type runOptions struct {
	oneLine
	container *runtimeapi.ContainerConfig
	pod       *runtimeapi.PodSandboxConfig
	podRef    string // a pod that is there already
	handler   string
	pull      pullOptions
	withPull  bool
	cancel    time.Duration
	detach    bool
	remove    bool
	dryRun    bool
	session   session
}

// newRun makes a pod with one container and runs it.
func newRun(env *Env) *cli.Command {
	o := newRunOptions()
	return &cli.Command{
		Name:      "run",
		Usage:     "run a container in a pod of its own",
		ArgsUsage: "IMAGE [COMMAND...] | CONTAINER-CONFIG POD-CONFIG",
		Description: describe("From an image: in the foreground, with the command's own status, unless --detach. "+
			"From two configuration files, or one file with two documents: detached, as in crictl; the container's id is printed. "+
			"What was made is taken away again when something fails. --image marks an image that is also a file's name, ./ a file.",
			"crishim run --rm busybox echo hello", "crishim run --rm -it busybox sh", "crishim run -d --name web -p 8080:80 busybox httpd -f", "crishim run container.json pod.json"),
		Subcommands: []*cli.Command{newSchema(env, "run", "container")},
		// -r is --runtime, as in runp, and -u is --user.
		Flags: slices.Concat(o.oneLineFlags(env), unaliased(o.session.flags(), "transport"), unaliased(o.pull.flags(), "username"), o.pull.choiceFlags(), []cli.Flag{
			stringFlag(&o.handler, "runtime", "run it with this runtime `HANDLER`", "r"),
			cancelFlag(&o.cancel),
			dryRunFlag(&o.dryRun),
		}),
		Action: env.offline(o.check, o.run),
	}
}

// check reads either form of run.
func (o *runOptions) check(env *Env, c *cli.Context) (err error) {
	args := c.Args().Slice()
	if o.image == "" {
		if err = argCount(c, 1, -1); err != nil {
			return err
		}
	}
	given := map[string]bool{}
	for _, name := range c.FlagNames() {
		given[name] = c.IsSet(name)
	}
	fromFiles := isCrictlRun(given, args)
	if fromFiles && o.user != "" {
		o.pull.user = o.user
	}
	if err = o.pull.check(env, c); err != nil {
		return err
	}
	o.pull.ifMissing = !o.pull.with && !(env.compat && fromFiles)
	config, err := env.config()
	if err != nil {
		return err
	}
	if o.withPull, err = o.pull.wanted(!config.DisablePullOnRun); err != nil {
		return err
	}
	if !fromFiles {
		if err = o.session.check(env); err != nil {
			return err
		}
		return o.completeOneLine(c, args)
	}
	o.detach = true
	return o.readFiles(env, args)
}

// readFiles reads crictl's form.
func (o *runOptions) readFiles(env *Env, args []string) (err error) {
	switch {
	case len(args) == 1:
		o.container, o.pod, err = env.readBoth(args[0])
		return err
	case args[0] == "-" && args[1] == "-":
		return usagef("only one of the two files can be standard input")
	}
	if o.container, _, err = env.readContainerFile(args[0]); err == nil {
		o.pod, err = env.readPodFile(args[1])
	}
	return err
}

func (o *runOptions) run(ctx context.Context, env *Env) error {
	if o.podRef == "" {
		completePod(o.pod)
	}
	if o.dryRun {
		completeContainer(o.container, o.pod)
		return printRequest(env,
			&runtimeapi.RunPodSandboxRequest{Config: o.pod, RuntimeHandler: o.handler},
			&runtimeapi.CreateContainerRequest{Config: o.container})
	}
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := &runner{runOptions: o, env: env, conn: conn}
	if err := r.make(ctx); err != nil {
		return join(cannotRun(err), r.cleanUp(ctx, true))
	}
	if o.detach {
		return env.say("%s", r.containerID)
	}
	// A reader that goes away, as head does, ends the run, but not this process
	// before it has cleaned up.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	err = r.foreground(ctx)
	if errors.Is(err, stream.ErrDetached) {
		return env.say("%s", r.containerID)
	}
	return join(err, r.cleanUp(ctx, o.remove))
}

// runner makes a pod and a container and takes them away in reverse.
type runner struct {
	*runOptions
	env  *Env
	conn *client.Conn

	podID, containerID string
	madePod            bool
}

// make pulls first: what is wrong with an image leaves no pod behind.
func (r *runner) make(ctx context.Context) (err error) {
	if r.withPull {
		if err := r.pull.pullFor(ctx, r.env, r.conn, r.container, r.pod); err != nil {
			return err
		}
	}
	ctx = limited(ctx, r.cancel)
	if err := r.makePod(ctx); err != nil {
		return err
	}
	if r.containerID, err = createContainer(ctx, r.conn, r.podID, r.container, r.pod); err != nil {
		return err
	}
	_, err = r.conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.containerID})
	return err
}

func (r *runner) makePod(ctx context.Context) (err error) {
	if r.podRef == "" {
		r.podID, err = runPod(ctx, r.conn, r.pod, r.handler)
		r.madePod = err == nil
		return err
	}
	pod, err := r.conn.Pod(ctx, r.podRef, client.Running)
	if err != nil {
		return err
	}
	r.podID = pod.GetId()
	if r.pod, err = podConfigOf(ctx, r.conn, r.podID); err != nil {
		return err
	}
	return completeAttempt(ctx, r.conn, pod, r.container)
}

const (
	// interruptGrace is how long a container has to end when its run is over.
	interruptGrace = 2 * time.Second
	// cleanUpLimit bounds the way back, which no interrupt cuts short.
	cleanUpLimit = time.Minute
)

// cleanUp stops the container, and the pod if it was made for it, to be looked at; or
// removes both.
func (r *runner) cleanUp(ctx context.Context, remove bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	var errs []error
	switch {
	case r.containerID == "":
	case remove:
		errs = append(errs, removeByForce(ctx, r.conn, r.containerID, true, interruptGrace))
	default:
		_, err := r.conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: r.containerID, Timeout: int64(interruptGrace.Seconds())})
		errs = append(errs, unlessGone(err))
	}
	if r.madePod {
		_, err := r.conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.podID})
		errs = append(errs, unlessGone(err))
	}
	if r.madePod && remove {
		_, err := r.conn.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.podID})
		if err = unlessGone(err); err == nil {
			err = removeOwnLogs(r.pod.GetMetadata())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
