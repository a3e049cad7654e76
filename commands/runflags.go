package commands

import (
	"cmp"
	"os"
	"path"
	"strings"

	"github.com/distribution/reference"
	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// oneLineFlags make sense only where run makes its configurations itself.
func oneLineFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "image", Usage: "run `IMAGE`; all arguments are the command"},
		&cli.StringFlag{Name: "name", Usage: "call the pod and the container `NAME`"},
		&cli.StringFlag{Name: "pod", Usage: "make the container in `POD`, which runs already"},
		&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "set the variable `NAME=VALUE`, or pass NAME on"},
		&cli.StringSliceFlag{Name: "volume", Aliases: []string{"v"}, Usage: "mount `HOST:CONTAINER[:ro]`"},
		&cli.StringSliceFlag{Name: "publish", Aliases: []string{"p"}, Usage: "map `[IP:]HOST:CONTAINER[/udp]`"},
		&cli.StringFlag{Name: "network", Value: "pod", Usage: "`NETWORK`: pod, host"},
		&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "run as `USER[:GROUP]`; with two files the user for the registry, as in crictl"},
		&cli.StringFlag{Name: "workdir", Aliases: []string{"w"}, Usage: "start in `DIRECTORY`"},
		&cli.StringFlag{Name: "entrypoint", Usage: "run `COMMAND` in place of the image's entry point"},
		&cli.StringFlag{Name: "hostname", Usage: "the pod's `HOSTNAME`"},
		&cli.StringSliceFlag{Name: "label", Usage: "label the pod and the container `KEY=VALUE`"},
		&cli.BoolFlag{Name: "privileged", Usage: "with all rights of the host"},
		&cli.BoolFlag{Name: "read-only", Usage: "with a root filesystem that cannot be written"},
		&cli.StringSliceFlag{Name: "cap-add", Usage: "give the capability `CAP`"},
		&cli.StringSliceFlag{Name: "cap-drop", Usage: "take the capability `CAP` away"},
		&cli.StringFlag{Name: "memory", Aliases: []string{"m"}, Usage: "limit memory to `SIZE`: 512Mi, 1g"},
		&cli.StringFlag{Name: "cpus", Usage: "limit CPU time to `N` processors: 0.5, 2"},
		&cli.BoolFlag{Name: "rm", Usage: "remove container and pod at the end"},
		&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "print the container's id and return"},
	}
}

func runFlags() []cli.Flag {
	flags := append(oneLineFlags(), sessionFlags()...)
	for _, flag := range flags {
		if transport, ok := flag.(*cli.StringFlag); ok && transport.Name == "transport" {
			transport.Aliases = nil // -r is --runtime, as in runp
		}
	}
	for _, flag := range pullFlags() {
		if user, ok := flag.(*cli.StringFlag); ok && user.Name == "username" {
			user.Aliases = nil // -u is --user
		}
		flags = append(flags, flag)
	}
	flags = append(flags, pullChoiceFlags()...)
	return append(flags,
		&cli.StringFlag{Name: "runtime", Aliases: []string{"r"}, Usage: "run it with this runtime `HANDLER`"},
		cancelFlag(), dryRunFlag())
}

// runOptionsOf reads either form of run.
func runOptionsOf(env *Env, c *cli.Context) (o runOptions, err error) {
	args := c.Args().Slice()
	if c.String("image") == "" {
		if err = argCount(c, 1, -1); err != nil {
			return o, err
		}
	}
	o.handler, o.cancel, o.dryRun = c.String("runtime"), durationOf(c, "cancel-timeout"), c.Bool("dry-run")
	fromFiles := isCrictlRun(setFlags(c), args)
	if fromFiles && c.String("user") != "" {
		if err := c.Set("username", c.String("user")); err != nil {
			return o, err
		}
	}
	if o.pull, err = readPullFlags(env, c); err != nil {
		return o, err
	}
	o.pull.ifMissing = !c.Bool("with-pull") && !(env.compat && fromFiles)
	config, err := env.config()
	if err != nil {
		return o, err
	}
	if o.withPull, err = wantsPull(c, !config.DisablePullOnRun); err != nil {
		return o, err
	}
	if fromFiles {
		o.detach = true
		err = o.readFiles(env, args)
		return o, err
	}
	if o.session, err = readSession(env, c); err != nil {
		return o, err
	}
	return o, o.readOneLine(env, c)
}

// setFlags are the flags of one-line runs that were given.
func setFlags(c *cli.Context) map[string]bool {
	given := map[string]bool{}
	for _, name := range c.FlagNames() {
		given[name] = c.IsSet(name)
	}
	return given
}

func (o *runOptions) readFiles(env *Env, args []string) (err error) {
	if len(args) == 1 {
		o.container, o.pod, err = env.readBoth(args[0])
		return err
	}
	if args[0] == "-" && args[1] == "-" {
		return usagef("only one of the two files can be standard input")
	}
	if o.container, _, err = env.readContainerFile(args[0]); err != nil {
		return err
	}
	o.pod, err = env.readPodFile(args[1])
	return err
}

// readOneLine makes the configurations from flags.
func (o *runOptions) readOneLine(env *Env, c *cli.Context) error {
	image, command := c.String("image"), c.Args().Slice()
	if image == "" {
		image, command = command[0], command[1:]
	}
	o.detach, o.remove, o.podRef = c.Bool("detach"), c.Bool("rm"), c.String("pod")
	switch {
	case o.detach && o.remove:
		return withHintedUsage("crishim rmp -f removes it later", "--rm and --detach: nobody stays behind to remove the container")
	case o.detach && o.session.stdin:
		return usagef("--detach and --stdin contradict each other")
	case o.podRef != "" && (c.IsSet("publish") || c.IsSet("hostname")):
		return usagef("--publish and --hostname are for new pods, not for --pod")
	}
	name := c.String("name")
	if name == "" {
		name = "run-" + newUID()[:8]
	}
	labels, err := readLabels(c, "label")
	if err != nil {
		return err
	}
	o.pod = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name}, Hostname: cmp.Or(c.String("hostname"), name), Labels: labels,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{Privileged: c.Bool("privileged")}},
	}
	o.container = &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: containerNameFor(c.String("name"), image)}, Labels: labels,
		Image: &runtimeapi.ImageSpec{Image: image}, Args: command, WorkingDir: c.String("workdir"),
		Stdin: o.session.stdin, StdinOnce: o.session.stdin, Tty: o.session.tty,
	}
	if entry := c.String("entrypoint"); entry != "" {
		o.container.Command = strings.Fields(entry)
	}
	return o.readDetails(env, c)
}

func withHintedUsage(hint, text string) error { return &usageError{text: text, hint: hint} }

// containerNameFor is the name that was given, or the image's last part.
func containerNameFor(name, image string) string {
	if name != "" {
		return name
	}
	if named, err := reference.ParseNormalizedNamed(image); err == nil {
		return path.Base(reference.Path(named))
	}
	return "main"
}

// isCrictlRun tells crictl's form of run from IMAGE [COMMAND]: two arguments
// that are files, or one that says so itself, and no flag of the other form.
func isCrictlRun(seen map[string]bool, rest []string) bool {
	for _, flag := range oneLineFlags() {
		if name := flag.Names()[0]; name != "user" && seen[name] {
			return false
		}
	}
	switch len(rest) {
	case 1:
		return isConfigFile(rest[0])
	case 2:
		return isFile(rest[0]) && isFile(rest[1])
	}
	return false
}

// isConfigFile says that an argument alone can only mean a file.
func isConfigFile(arg string) bool {
	switch path.Ext(arg) {
	case ".json", ".yaml", ".yml":
		return isFile(arg)
	}
	return arg == "-" || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || strings.HasPrefix(arg, "/")
}

// isFile says that an argument is a file: one that exists, standard input, or
// one whose path says so.
func isFile(arg string) bool {
	if arg == "-" || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && !info.IsDir()
}

// readDetails reads what has a small language of its own.
func (o *runOptions) readDetails(env *Env, c *cli.Context) (err error) {
	if o.container.Envs, err = readEnvs(env, c.StringSlice("env")); err != nil {
		return err
	}
	if o.container.Mounts, err = readVolumes(c.StringSlice("volume")); err != nil {
		return err
	}
	if o.pod.PortMappings, err = readPorts(c.StringSlice("publish")); err != nil {
		return err
	}
	security, err := readSecurity(c)
	if err != nil {
		return err
	}
	resources, err := readLimits(c)
	if err != nil {
		return err
	}
	o.container.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: security, Resources: resources}
	switch network := c.String("network"); network {
	case "pod":
	case "host":
		options := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
		o.pod.Linux.SecurityContext.NamespaceOptions = options
		o.pod.Hostname = "" // the host's own
		security.NamespaceOptions = options
		if len(o.pod.PortMappings) > 0 {
			return usagef("--publish does nothing with --network host")
		}
	default:
		return usagef("--network %s: want pod or host", quote(network))
	}
	// A process namespace of its own, as a pod has by default.
	if security.NamespaceOptions == nil {
		security.NamespaceOptions = &runtimeapi.NamespaceOption{}
	}
	security.NamespaceOptions.Pid = runtimeapi.NamespaceMode_CONTAINER
	return nil
}
