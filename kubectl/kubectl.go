// Package kubectl is the plugin kubectl-crishim: it runs command lines of crishim on the nodes of a
// cluster. Main reads the flags; commands reads the command line behind them, as on one machine, and
// shows what comes of it. In between, on each node, is a pod (pods.go, manifest.go) and an exec in
// it (exec.go). A pod is made for one command line and removed after it, unless a DaemonSet of
// crishim stands there or --keep is given.
//
// It brings nothing to the cluster that stays: no controller, no custom resource, no webhook.
package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
)

const usage = `Run crishim on nodes of the cluster.

  kubectl crishim (--node NODE | pod/NAME | --nodes SELECTOR | --all) [flags] -- COMMAND [options] [arguments]

Examples:
  kubectl crishim --node worker-1 -- ps
  kubectl crishim --node worker-1 -- exec -it web sh
  kubectl crishim pod/web -n shop -- inspect web
  kubectl crishim --all -- images --sort -size
  kubectl crishim --nodes pool=gpu --yes -- rmi --prune

Flags:
`

// options are the flags in front of the command line.
type options struct {
	config *genericclioptions.ConfigFlags

	node, pod, selector string
	all                 bool
	parallel            int
	nodeTimeout         time.Duration
	image               string // of --image, which the pods of a DaemonSet are not used with
	usualImage          string // of the environment; "" for that of the release
	keep, yes           bool
	help                bool
	namespaceGiven      bool
	version             string // of this program
}

func (o *options) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("kubectl crishim", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	flags.StringVar(&o.node, "node", "", "run the command line on this node")
	flags.StringVar(&o.selector, "nodes", "", "run it on all nodes with these labels: a=b,c!=d")
	flags.BoolVar(&o.all, "all", false, "run it on all nodes")
	flags.IntVar(&o.parallel, "parallel", 64, "run it on so many nodes at once")
	flags.DurationVar(&o.nodeTimeout, "node-timeout", 0, "timeout of each node (default 1m, or 10m for what changes or runs something)")
	flags.StringVar(&o.image, "image", "", "image of crishim for the pods (env CRISHIM_IMAGE, default "+defaultImage("VERSION")+")")
	flags.BoolVar(&o.keep, "keep", false, "leave the pod for the next command line; the first without --keep removes it")
	flags.BoolVar(&o.yes, "yes", false, "change several nodes without asking")
	flags.BoolVarP(&o.help, "help", "h", false, "show help")
	o.config = genericclioptions.NewConfigFlags(false)
	o.config.AddFlags(flags)
	return flags
}

// Main runs one command line, without the program's name, and returns the status to exit with.
func Main(ctx context.Context, args []string, env *cli.Env) int {
	o := &options{}
	flags := o.flags()
	line, err := o.read(flags, args)
	switch {
	case err != nil:
		fmt.Fprintf(env.Err, "crishim: %v\n", err)
		cli.WriteHint(env.Err, cli.HintOf(err))
		return cli.ExitUsage
	case o.help:
		fmt.Fprint(env.Out, usage, flags.FlagUsagesWrapped(100))
		return 0
	}
	o.usualImage, _ = env.LookupEnv("CRISHIM_IMAGE")
	o.version = cli.OwnVersion(env)
	p := &plugin{options: o, env: env}
	env.Remote = &cli.Remote{What: "node", ToOne: "kubectl crishim --node NODE --"}
	globals := []string{"crishim"}
	if o.node != "" || o.pod != "" {
		env.Remote.Alone = p.alone
	} else {
		env.Remote.Names, env.Remote.Run = p.names, p.run
		globals = append(globals, fmt.Sprint("--parallel=", o.parallel))
		if o.nodeTimeout != 0 {
			globals = append(globals, fmt.Sprint("--node-timeout=", o.nodeTimeout))
		}
		if o.yes {
			globals = append(globals, "--yes")
		}
	}
	exit := env.Exit
	env.Exit = func(status int) { // at a second signal
		p.end()
		exit(status)
	}
	defer p.end()
	return commands.Main(ctx, slices.Concat(globals, line), env)
}

// imageOrDefault returns the image of the pods to create. Only releases have one.
func (o *options) imageOrDefault() (string, error) {
	if image := cmp.Or(o.image, o.usualImage); image != "" {
		return image, nil
	}
	if !isRelease.MatchString(o.version) {
		return "", cli.WithHint(fmt.Errorf("there is no image for %s, which is not a release of crishim", o.version), "`--image IMAGE`, or CRISHIM_IMAGE, names one with crishim in it")
	}
	return defaultImage(o.version), nil
}

var isRelease = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// read parses the arguments: the flags, and the command line behind "--".
func (o *options) read(flags *pflag.FlagSet, args []string) (line []string, err error) {
	own, found := args, false
	if i := slices.Index(args, "--"); i >= 0 {
		own, line, found = args[:i], args[i+1:], true
	}
	if err := flags.Parse(own); err != nil {
		return nil, cli.WithHint(err, "`kubectl crishim --help` lists the flags; those of the command stand behind --")
	}
	o.namespaceGiven = flags.Changed("namespace")
	for _, arg := range flags.Args() {
		kind, name, slash := strings.Cut(arg, "/")
		switch {
		case !slash:
			return nil, cli.WithHint(fmt.Errorf("%q stands in front of --", arg), "kubectl crishim --node NODE -- %s", strings.Join(flags.Args(), " "))
		case !slices.Contains([]string{"pod", "pods", "po"}, kind) || name == "" || o.pod != "":
			return nil, fmt.Errorf("%q: one pod is named, as pod/NAME", arg)
		}
		o.pod = name
	}
	where := 0
	for _, given := range []bool{flags.Changed("node"), flags.Changed("nodes"), o.all, o.pod != ""} {
		if given {
			where++
		}
	}
	switch {
	case o.help:
	case len(args) == 0:
		o.help = true
	case where != 1:
		err = errors.New("name where to run: one of --node NODE, pod/NAME, --nodes SELECTOR, --all")
	case flags.Changed("node") && o.node == "", flags.Changed("nodes") && o.selector == "":
		err = errors.New("--node and --nodes must not be empty")
	case o.nodeTimeout < 0:
		err = cli.Invalid("node-timeout", o.nodeTimeout, "must not be negative")
	case !found || len(line) == 0:
		err = cli.WithHint(errors.New("there is no command line"), "it stands behind --: kubectl crishim --node NODE -- ps")
	}
	return line, err
}

// plugin runs command lines on nodes.
type plugin struct {
	*options
	env     *cli.Env
	cluster *cluster
	pods    *pods
}

// connect reads the kubeconfig. No request is made yet.
func (p *plugin) connect() error {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return err
	}
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	config.UserAgent = "kubectl-crishim/" + cli.OwnVersion(p.env)
	config.QPS = -1                              // a pod on each of many nodes is no flood, and --parallel limits it
	config.ContentType = runtime.ContentTypeJSON // as kubectl: proxies and audit logs can read it
	api, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return err
	}
	p.cluster = &cluster{api: api, config: config, namespace: namespace}
	return nil
}

// names returns the nodes to run on.
func (p *plugin) names(ctx context.Context) ([]string, error) {
	if err := p.connect(); err != nil {
		return nil, err
	}
	nodes, err := p.cluster.nodes(ctx, p.selector)
	if err != nil {
		return nil, err
	}
	return nodes, p.openPods(ctx)
}

// openPods lists the pods of crishim that there are.
func (p *plugin) openPods(ctx context.Context) (err error) {
	p.pods, err = newPods(ctx, p.cluster, p.options, func(what error) {
		fmt.Fprintf(p.env.Err, "crishim: warning: %s\n", cli.Sentence(p.env, what))
	})
	return err
}

// run runs a command line on one of several nodes.
func (p *plugin) run(ctx context.Context, node string, line cli.Line, stdout, stderr io.Writer) (status int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("this is a fault of kubectl-crishim: %v", r)
		}
	}()
	pod, release, err := p.pods.on(ctx, node, line)
	if err != nil {
		return 0, err
	}
	defer release()
	return p.pods.exec(ctx, pod, line.Args, session{out: stdout, err: stderr})
}

// alone runs a command line on one node, as if it ran here.
func (p *plugin) alone(ctx context.Context, line cli.Line) (err error) {
	if err := p.connect(); err != nil {
		return err
	}
	if p.node == "" {
		if p.node, err = p.cluster.nodeOf(ctx, p.pod); err != nil {
			return err
		}
	}
	if err := p.openPods(ctx); err != nil {
		return err
	}
	if p.env.ErrTerminal {
		p.pods.say = func(what error) { fmt.Fprintf(p.env.Err, "crishim: %s\n", cli.Sentence(p.env, what)) }
	}
	if p.nodeTimeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.nodeTimeout, fmt.Errorf("no answer within %s", p.nodeTimeout))
		defer cancel()
	}
	pod, release, err := p.pods.on(ctx, p.node, line)
	if err != nil {
		return fmt.Errorf("node %s: %w", p.node, err)
	}
	defer release()
	s := session{out: p.env.Out, err: p.env.Err, forward: true}
	terminal := p.env.InTerminal && p.env.OutTerminal
	switch {
	case terminal && (p.env.ErrTerminal || line.TTY):
		s.terminal, _ = p.env.In.(*os.File)
	case line.Input:
		s.in = p.env.In
	}
	status, err := p.pods.exec(ctx, pod, line.Args, s)
	switch {
	case err != nil:
		return fmt.Errorf("node %s: %w", p.node, err)
	case status != 0:
		return &stream.ExitError{Code: status}
	}
	return nil
}

// end removes what is left.
func (p *plugin) end() {
	if p.pods != nil {
		p.pods.end()
	}
}
