package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/kube"
)

const debugImage = "busybox:latest"

type debugOptions struct {
	exec    execOptions // the command in the debug container
	image   string
	profile string
	env     []*runtimeapi.KeyValue
	pull    cli.PullOptions
	keep    bool
	copyTo  string // name of the new pod for --copy-to; "" for no copy
}

// NewDebug returns the verb that runs tools of another image in a container of the same pod. The debug container sees
// the target's processes and, through them, the target's files.
func NewDebug(in *cli.Invocation) *cli.Verb {
	o := &debugOptions{image: debugImage, profile: "general"}
	image := cli.Typed(&o.image, cli.NotEmpty, "image", "Debug with `IMAGE`, which is pulled if it is missing")
	image.DefaultText = debugImage
	return &cli.Verb{
		Usage:     "Debug a container with the tools of another image",
		ArgsUsage: "CONTAINER [COMMAND [ARG...]]",
		Args:      cli.First(cli.CompleteContainers("running"), cli.CompleteFiles),
		Description: cli.WithExamples("Creates a container in the same pod that shares the target's network and processes, runs the command or a\n"+
			"shell in it and removes it afterwards. The target's files are below /proc/PID/root of its processes: /proc/1/root\n"+
			"unless the pod shares its processes. The image needs sh.\n"+
			"--copy-to runs the command in a copy of a container that cannot run or has ended. The copy has a new pod, the same\n"+
			"environment, mounts and security settings, the same image unless --image is given, and publishes no host ports.",
			"crishim debug web", "crishim debug --image alpine:3 web", "crishim debug web ps", "crishim debug --profile net web netstat -tln",
			"crishim debug --copy-to web-debug web"),
		Flags: slices.Concat([]urfave.Flag{
			image,
			o.exec.in.ContainerFlag(),
			o.exec.in.NamespaceFlag(),
			cli.WordFlag(&o.profile, []string{"general", "net", "sys"}, "profile", "Use debugging `PROFILE`: general (trace processes), net (configure the network), sys (mount and administer the system)"),
			envFlag(in.LookupEnv, &o.env, "Set the environment variable `NAME=VALUE`"),
			cli.StringFlag(&o.copyTo, "copy-to", "Debug a copy of the container in a new pod called `NAME`"),
			cli.BoolFlag(&o.keep, "keep", "Keep the debug container"),
		}, o.exec.session.Flags(), cli.WithoutFlags(o.pull.Flags(), "username")),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *debugOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	if err = cli.ArgCount(c, 1, -1); err != nil {
		return err
	}
	if o.copyTo != "" && (c.IsSet("profile") || c.IsSet("env")) {
		return cli.Usagef("--profile and --env cannot be used with --copy-to: a copy has the security and the environment of its container")
	}
	if o.copyTo != "" && !c.IsSet("image") {
		o.image = "" // the copy uses the image of the original container
	}
	o.exec.target, o.exec.command = c.Args().First(), c.Args().Tail()
	if err = o.exec.session.Check(in); err != nil {
		return err
	}
	if err = o.pull.Check(in, c); err != nil {
		return err
	}
	o.pull.IfMissing = true
	return o.exec.complete(in, "debug")
}

func (o *debugOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	o.exec.session.DropTTYWithoutTerminal(printer)
	if o.copyTo != "" {
		return o.runCopy(ctx, printer, conn)
	}
	target, err := conn.FindContainer(ctx, o.exec.in.Query(o.exec.target, client.RunningAttempt))
	if err != nil {
		return err
	}
	pod, err := podConfigOf(ctx, conn, target.GetPodSandboxId())
	if err != nil {
		return err
	}
	config := o.config(target.GetId())
	if err := o.pull.PullFor(ctx, printer, conn, config, pod); err != nil {
		return err
	}
	id, err := createContainer(ctx, conn, target.GetPodSandboxId(), config, pod)
	if status.Code(err) == codes.InvalidArgument {
		// crishim's dockershim rejects a target that shares the PID namespace of its pod or node. The debug container
		// then uses the PID mode of the pod.
		config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
			Pid: pod.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid(),
		}
		id, err = createContainer(ctx, conn, target.GetPodSandboxId(), config, pod)
	}
	if err != nil {
		return err
	}
	if !o.keep {
		defer o.remove(ctx, printer, conn, id)
	}
	if _, err := conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		var missing *cli.StatusError
		if errors.As(cannotRun(err), &missing) && missing.Code == cli.ExitNotFound {
			return cli.WithHint(fmt.Errorf("the image %s has no sh", o.image), "--image takes one that has one, such as %s", debugImage)
		}
		return fmt.Errorf("start the debug container: %w", err)
	}
	helper := &runtimeapi.Container{Id: id, Metadata: config.GetMetadata(), Labels: target.GetLabels()}
	return o.exec.inOne(ctx, conn, helper, o.exec.session.Streams(printer))
}

// config returns a container that only waits for SIGTERM. The command runs through exec, because an attach would miss
// its first output.
func (o *debugOptions) config(target string) *runtimeapi.ContainerConfig {
	capabilities := []string{"SYS_PTRACE"}
	if o.profile == "net" || o.profile == "sys" {
		capabilities = append(capabilities, "NET_ADMIN", "NET_RAW")
	}
	if o.profile == "sys" {
		capabilities = append(capabilities, "SYS_ADMIN")
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "debug-" + strings.ToLower(rand.Text()[:6])},
		Image:    &runtimeapi.ImageSpec{Image: o.image, UserSpecifiedImage: o.image},
		Command:  []string{"sh", "-c", "trap 'kill $!; wait $!; exit 0' TERM; while :; do sleep 3600 & wait $!; done"},
		Labels:   map[string]string{kube.LabelDebug: target},
		Envs:     o.env,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			Capabilities:     &runtimeapi.Capability{AddCapabilities: capabilities},
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target},
		}},
	}
	if !o.keep {
		config.Annotations = map[string]string{api.AnnotationTemporary: "true"}
	}
	return config
}

// remove removes the debug container, also after an interrupt. The container must end by itself: if its shell is killed
// first, its sleep becomes a child of the target's first process, which may never reap it.
func (o *debugOptions) remove(ctx context.Context, printer *cli.Printer, conn *client.Conn, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if err := removeByForce(ctx, conn, id, true, interruptGrace); err != nil {
		printer.Warn("the debug container %.13s is still there: %w", id, err)
	}
}
