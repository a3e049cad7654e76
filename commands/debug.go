package commands

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
)

const (
	debugImage = "busybox:latest"
	debugLabel = "io.crishim.debug"
	// debugCleanUp is what removing the debug container may take.
	debugCleanUp = time.Minute
	// debugGrace is how many seconds the container has to end by itself, which it does at
	// once where it can.
	debugGrace = 2
)

// newDebug brings tools to a container that has none: a container of its own in
// the same pod, which sees the target's processes and, through them, its files.
func newDebug(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "debug",
		Usage:     "run a shell or a command beside a container, with another image",
		ArgsUsage: "CONTAINER [COMMAND [ARG...]]",
		Description: describe("Makes a container in the same pod that shares the target's network and processes, runs the command or a\n"+
			"shell in it and removes it afterwards. The target's files are below /proc/PID/root of its processes, which is\n"+
			"/proc/1/root unless the pod shares its processes. The image needs sh.",
			"crishim debug web", "crishim debug --image alpine:3 web", "crishim debug web ps", "crishim debug --profile net web netstat -tln"),
		Flags: append(append([]cli.Flag{
			&cli.StringFlag{Name: "image", Value: debugImage, Usage: "`IMAGE` with the tools; pulled when it is missing"},
			&cli.StringFlag{Name: "profile", Value: "general", Usage: "`RIGHTS` of the container: general (trace processes), net (change the network), sys (also mount and the like)"},
			&cli.StringSliceFlag{Name: "env", Usage: "set `NAME=VALUE`"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the debug container there"},
		}, sessionFlags()...), withoutFlag(pullFlags(), "username")...),
		Action: action(env, debugOptionsOf, runDebug),
	}
}

type debugOptions struct {
	exec   execOptions // what runs in the debug container
	target string
	image  string
	rights *runtimeapi.LinuxContainerSecurityContext
	env    []*runtimeapi.KeyValue
	pull   pullOptions
	keep   bool
}

// withoutFlag leaves out a flag whose short name is taken by another.
func withoutFlag(flags []cli.Flag, name string) []cli.Flag {
	var kept []cli.Flag
	for _, f := range flags {
		if f.Names()[0] != name {
			kept = append(kept, f)
		}
	}
	return kept
}

func debugOptionsOf(env *Env, c *cli.Context) (o debugOptions, err error) {
	if err = argCount(c, 1, -1); err != nil {
		return o, err
	}
	o.target, o.exec.command = c.Args().First(), c.Args().Tail()
	o.exec.target = o.target
	o.image, o.keep = c.String("image"), c.Bool("keep")
	if o.image == "" {
		return o, usagef("--image is empty")
	}
	if o.rights, err = debugRights(c.String("profile")); err != nil {
		return o, err
	}
	if o.env, err = readEnvs(env, c.StringSlice("env")); err != nil {
		return o, err
	}
	if o.exec.session, err = readSession(env, c); err != nil {
		return o, err
	}
	if o.pull, err = readPullFlags(env, c); err != nil {
		return o, err
	}
	o.pull.ifMissing = true
	o.exec, err = o.exec.complete(env, "debug")
	return o, err
}

// debugRights are what a profile allows.
func debugRights(profile string) (*runtimeapi.LinuxContainerSecurityContext, error) {
	rights := &runtimeapi.LinuxContainerSecurityContext{Capabilities: &runtimeapi.Capability{AddCapabilities: []string{"SYS_PTRACE"}}}
	switch profile {
	case "general":
	case "net":
		rights.Capabilities.AddCapabilities = append(rights.Capabilities.AddCapabilities, "NET_ADMIN", "NET_RAW")
	case "sys":
		rights.Capabilities.AddCapabilities = append(rights.Capabilities.AddCapabilities, "NET_ADMIN", "NET_RAW", "SYS_ADMIN")
	default:
		return nil, usagef("--profile %s: want general, net or sys", quote(profile))
	}
	return rights, nil
}

func runDebug(ctx context.Context, env *Env, o debugOptions) error {
	o.exec.session.fit(env)
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	target, err := conn.Container(ctx, o.target, client.Running)
	if err != nil {
		return err
	}
	pod, err := podConfigOf(ctx, conn, target.GetPodSandboxId())
	if err != nil {
		return err
	}
	config := o.config(target.GetId())
	if err := pullFor(ctx, env, conn, o.pull, config, pod); err != nil {
		return err
	}
	id, err := createBeside(ctx, conn, target.GetPodSandboxId(), config, pod)
	if err != nil {
		return err
	}
	if !o.keep {
		defer o.remove(ctx, env, conn, id)
	}
	if _, err := conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return noShellIn(o.image, err)
	}
	helper := &runtimeapi.Container{Id: id, Metadata: config.GetMetadata(), Labels: target.GetLabels()}
	return o.exec.inOne(ctx, conn, helper, o.exec.session.streams(env))
}

// noShellIn tells an image without a shell from other failures of a start.
func noShellIn(image string, err error) error {
	var missing *statusError
	if errors.As(cannotRun(err), &missing) && missing.code == exitNotFound {
		return withHint(fmt.Errorf("the image %s has no sh", image), "--image takes one that has, such as %s", debugImage)
	}
	return fmt.Errorf("start the debug container: %w", err)
}

// createBeside makes the debug container. A target that shares the processes of
// its pod, or of the node, has none of its own to join; then the debug
// container shares them too.
func createBeside(ctx context.Context, conn *client.Conn, podID string, config *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := createContainer(ctx, conn, podID, config, pod)
	if status.Code(err) != codes.InvalidArgument {
		return id, err
	}
	config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
		Pid: pod.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid(),
	}
	return createContainer(ctx, conn, podID, config, pod)
}

// config is a container that does nothing until it is told to end. The command
// is run in it with exec: an attach would miss what a command writes first.
func (o debugOptions) config(target string) *runtimeapi.ContainerConfig {
	o.rights.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "debug-" + strings.ToLower(rand.Text()[:6])},
		Image:    &runtimeapi.ImageSpec{Image: o.image, UserSpecifiedImage: o.image},
		Command:  []string{"sh", "-c", "trap 'kill $!; wait $!; exit 0' TERM; while :; do sleep 3600 & wait $!; done"},
		Labels:   map[string]string{debugLabel: target},
		Envs:     o.env,
		Linux:    &runtimeapi.LinuxContainerConfig{SecurityContext: o.rights},
	}
	if !o.keep {
		config.Annotations = map[string]string{api.AnnotationTemporary: "true"}
	}
	return config
}

// remove takes the debug container away, also after an interrupt. Its sleep has to end
// before its shell: an orphan goes to the target's first process, which may never ask
// for its status.
func (o debugOptions) remove(ctx context.Context, env *Env, conn *client.Conn, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), debugCleanUp)
	defer cancel()
	_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: debugGrace})
	if err == nil {
		_, err = conn.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	}
	if err != nil && !isGone(err) {
		env.warn("the debug container %.13s is still there: %s", id, sentence(env, err))
	}
}
