package commands

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
)

// newRun makes a pod with one container and runs it.
func newRun(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a container in a pod of its own",
		ArgsUsage: "IMAGE [COMMAND...] | CONTAINER-CONFIG POD-CONFIG",
		Description: describe("From an image: in the foreground, with the command's own status, unless --detach. "+
			"From two configuration files, or one file with two documents: detached, as in crictl; the container's id is printed. "+
			"What was made is taken away again when something fails. --image marks an image that is also a file's name, ./ a file.",
			"crishim run --rm busybox echo hello", "crishim run --rm -it busybox sh", "crishim run -d --name web -p 8080:80 busybox httpd -f", "crishim run container.json pod.json"),
		Subcommands: []*cli.Command{newSchema(env, "run", "container")},
		Flags:       runFlags(),
		Action:      action(env, runOptionsOf, runRun),
	}
}

type runOptions struct {
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

func runRun(ctx context.Context, env *Env, o runOptions) error {
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
	r := &runner{env: env, conn: conn, o: o}
	if err := r.make(ctx); err != nil {
		return join(cannotRun(err), r.undo(ctx))
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
	return join(err, r.tidy(ctx))
}

// runner makes a pod and a container and takes them away in reverse.
type runner struct {
	env  *Env
	conn *client.Conn
	o    runOptions

	podID, containerID string
	madePod            bool
}

// make pulls first: what is wrong with an image leaves no pod behind.
func (r *runner) make(ctx context.Context) error {
	if r.o.withPull {
		if err := pullFor(ctx, r.env, r.conn, r.o.pull, r.o.container, r.o.pod); err != nil {
			return err
		}
	}
	ctx = limited(ctx, r.o.cancel)
	if err := r.makePod(ctx); err != nil {
		return err
	}
	var err error
	if r.containerID, err = createContainer(ctx, r.conn, r.podID, r.o.container, r.o.pod); err != nil {
		return err
	}
	_, err = r.conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.containerID})
	return err
}

func (r *runner) makePod(ctx context.Context) (err error) {
	if r.o.podRef == "" {
		r.podID, err = runPod(ctx, r.conn, runpOptions{pod: r.o.pod, handler: r.o.handler})
		r.madePod = err == nil
		return err
	}
	pod, err := r.conn.Pod(ctx, r.o.podRef, client.Running)
	if err != nil {
		return err
	}
	r.podID = pod.GetId()
	if r.o.pod, err = podConfigOf(ctx, r.conn, r.podID); err != nil {
		return err
	}
	return completeAttempt(ctx, r.conn, pod, r.o.container)
}

// interruptGrace is how long a container has to end when its run is over.
const interruptGrace = 2 * time.Second

// cleanUpLimit bounds the way back, which no interrupt cuts short.
const cleanUpLimit = time.Minute

// undo removes the container, and the pod if it was made for it.
func (r *runner) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	var errs []error
	if r.containerID != "" {
		errs = append(errs, removeByForce(ctx, r.conn, r.containerID, true, int64(interruptGrace.Seconds())))
	}
	if r.madePod {
		errs = append(errs, r.stopPod(ctx), r.removePod(ctx))
	}
	return errors.Join(errs...)
}

// tidy follows a foreground run: with --rm nothing stays, else the container
// and its pod stay, stopped, to be looked at.
func (r *runner) tidy(ctx context.Context) error {
	if r.o.remove {
		return r.undo(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	_, err := r.conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: r.containerID, Timeout: int64(interruptGrace.Seconds())})
	if isGone(err) {
		err = nil
	}
	if r.madePod {
		err = errors.Join(err, r.stopPod(ctx))
	}
	return err
}

func (r *runner) stopPod(ctx context.Context) error {
	_, err := r.conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.podID})
	if isGone(err) {
		return nil
	}
	return err
}

func (r *runner) removePod(ctx context.Context) error {
	_, err := r.conn.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.podID})
	if err != nil && !isGone(err) {
		return err
	}
	return removeOwnLogs(r.o.pod.GetMetadata())
}
