package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
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

// options are the flags before the command line.
type options struct {
	config *genericclioptions.ConfigFlags

	node, pod, selector string
	all                 bool
	parallel            int
	nodeTimeout         time.Duration
	image               string // value of --image; if it is set, the pods of the DaemonSet are not used
	usualImage          string // from the environment; "": the release's image
	keep, yes           bool
	help                bool
	namespaceGiven      bool
	version             string // version of this program
}

func (o *options) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("kubectl crishim", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	flags.StringVar(&o.node, "node", "", "Run the command line on `NODE`")
	flags.StringVar(&o.selector, "nodes", "", "Run the command line on all nodes that match the label query `SELECTOR`: a=b,c!=d")
	flags.BoolVar(&o.all, "all", false, "Run the command line on all nodes")
	flags.IntVar(&o.parallel, "parallel", 64, "Run on `N` nodes at once")
	flags.DurationVar(&o.nodeTimeout, "node-timeout", 0, "Timeout of each node (default 1m, or 10m for commands that change or run something)")
	flags.StringVar(&o.image, "image", "", "Create pods from `IMAGE`, which contains crishim (env CRISHIM_IMAGE, default "+defaultImage("VERSION")+")")
	flags.BoolVar(&o.keep, "keep", false, "Keep the pod for the next command line; the first without --keep removes it")
	flags.BoolVar(&o.yes, "yes", false, "Make the change on several nodes instead of only showing it")
	flags.BoolVarP(&o.help, "help", "h", false, "Show help")
	o.config = genericclioptions.NewConfigFlags(false)
	o.config.AddFlags(flags)
	return flags
}

// runPlugin runs one command line, without the program's name, and returns the exit status.
func runPlugin(ctx context.Context, args []string, process *cli.Process) int {
	o := &options{}
	flags := o.flags()
	line, err := o.read(flags, args)
	switch {
	case err != nil:
		fmt.Fprintf(process.Err, "crishim: %v\n", err)
		cli.WriteHint(process.Err, cli.HintOf(err))
		return cli.ExitUsage
	case o.help:
		fmt.Fprint(process.Out, usage, flags.FlagUsagesWrapped(100))
		return 0
	}
	o.usualImage, _ = process.LookupEnv("CRISHIM_IMAGE")
	o.version = process.OwnVersion()
	p := &plugin{options: o, process: process, opened: map[string][]*opened{}}
	process.Cluster = &cli.Cluster{
		One: o.node != "" || o.pod != "", Parallel: o.parallel, Timeout: o.nodeTimeout, Yes: o.yes,
		Nodes: p.nodes, Open: p.open, Close: p.close, There: p.there,
	}
	exit := process.Exit
	process.Exit = func(status int) { // called at a second signal
		p.end()
		exit(status)
	}
	defer p.end()
	return commands.Main(ctx, append([]string{"crishim"}, line...), process)
}

// imageOrDefault returns the image for new pods. Only releases have a default.
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

// read parses the flags and returns the command line after "--".
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
			return nil, cli.WithHint(fmt.Errorf("%q stands in front of --", arg), "kubectl crishim --node NODE -- %s", shellwords.Quote(flags.Args()...))
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

type plugin struct {
	*options
	process *cli.Process
	cluster *cluster
	pods    *pods
	names   []string

	mu     sync.Mutex // guards opened
	opened map[string][]*opened
}

// opened is a pod in which command lines run.
type opened struct {
	pod     *corev1.Pod
	line    cli.NodeLine
	release func()
	unused  []net.Conn // unused connections to the runtime; guarded by plugin.mu
}

// connect reads the kubeconfig. It makes no request.
func (p *plugin) connect() error {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return err
	}
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	config.UserAgent = "kubectl-crishim/" + p.process.OwnVersion()
	config.QPS = -1                              // a pod on each of many nodes is acceptable load, and --parallel limits it
	config.ContentType = runtime.ContentTypeJSON // as kubectl: proxies and audit logs can read it
	api, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return err
	}
	p.cluster = &cluster{api: api, config: config, namespace: namespace}
	return nil
}

// nodes returns the nodes that the flags select and lists crishim's existing pods.
func (p *plugin) nodes(ctx context.Context) (names []string, err error) {
	if p.names != nil {
		return p.names, nil
	}
	if err := p.connect(); err != nil {
		return nil, err
	}
	switch {
	case p.node != "":
		names = []string{p.node}
	case p.pod != "":
		var node string
		node, err = p.cluster.nodeOf(ctx, p.pod)
		names = []string{node}
	default:
		names, err = p.cluster.nodes(ctx, p.selector)
	}
	if err == nil {
		err = p.openPods(ctx)
	}
	if err != nil {
		return nil, err
	}
	p.names = names
	return names, nil
}

func (p *plugin) openPods(ctx context.Context) (err error) {
	p.pods, err = newPods(ctx, p.cluster, p.options, func(what error) {
		fmt.Fprintf(p.process.Err, "crishim: warning: %s\n", cli.NewPrinter(p.process).Sentence(what))
	})
	if err == nil && p.process.ErrTerminal && (p.node != "" || p.pod != "") {
		p.pods.say = func(what error) {
			fmt.Fprintf(p.process.Err, "crishim: %s\n", cli.NewPrinter(p.process).Sentence(what))
		}
	}
	return err
}

// on returns a pod for a command line on a node. It reuses a pod whose rights, socket and mounts suffice.
func (p *plugin) on(ctx context.Context, node string, line cli.NodeLine) (*opened, error) {
	p.mu.Lock()
	for _, o := range p.opened[node] {
		if allows(o.line.Rights, line.Rights) && o.line.Socket == line.Socket && (o.line.Logs || !line.Logs) {
			p.mu.Unlock()
			return o, nil
		}
	}
	p.mu.Unlock()
	pod, release, err := p.pods.on(ctx, node, line)
	if err != nil {
		return nil, err
	}
	o := &opened{pod: pod, line: line, release: release}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened[node] = append(p.opened[node], o)
	return o, nil
}

// open returns a function that dials a node's runtime. It opens the first connection itself, so that a dial error reaches
// the caller unchanged.
func (p *plugin) open(ctx context.Context, node string, line cli.NodeLine) (func(context.Context, string, string) (net.Conn, error), error) {
	o, err := p.on(ctx, node, line)
	if err != nil {
		return nil, err
	}
	first, err := p.pods.dial(ctx, o.pod, line, "")
	if err != nil {
		return nil, err
	}
	take := p.hold(o, first)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == "unix" {
			if conn := take(); conn != nil {
				return conn, nil
			}
		}
		return p.pods.dial(ctx, o.pod, line, address)
	}, nil
}

// hold stores a connection for a single call of take. close closes connections that were not taken.
func (p *plugin) hold(o *opened, conn net.Conn) (take func() net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.unused = append(o.unused, conn)
	return func() net.Conn {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.Index(o.unused, conn)
		if i < 0 {
			return nil
		}
		o.unused = slices.Delete(o.unused, i, i+1)
		return conn
	}
}

func (p *plugin) close(node string) {
	var unused []net.Conn
	p.mu.Lock()
	all := p.opened[node]
	delete(p.opened, node)
	for _, o := range all {
		unused, o.unused = append(unused, o.unused...), nil
	}
	p.mu.Unlock()
	for _, conn := range unused {
		conn.Close()
	}
	for _, o := range all {
		o.release()
	}
}

// there runs a command line on a node with the standard streams. Without line.Input, standard input is an empty pipe. The
// end of ctx closes the pipe, and EOF interrupts the command line. With line.Input, the end of ctx closes the session.
func (p *plugin) there(ctx context.Context, streams stream.Streams, node string, line cli.NodeLine) error {
	o, err := p.on(ctx, node, line)
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	session, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	in, args := streams.In, line.Args
	leave := func() { cut(context.Cause(ctx)) }
	if !line.Input {
		attended, open := io.Pipe()
		in, args = attended, append([]string{kube.NodeWord, fmt.Sprint(line.Columns)}, args...)
		leave = func() {
			open.Close()
			time.AfterFunc(leaveTimeout, func() { cut(context.Cause(ctx)) })
		}
	}
	defer context.AfterFunc(ctx, leave)()
	status, err := p.pods.exec(session, o.pod, line, args, in, streams.Out, streams.Err)
	switch {
	case ctx.Err() != nil && err == nil && status == 0:
		return cli.ErrFollowed
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("node %s: %w", node, err)
	case status != 0:
		return &stream.ExitError{Code: status}
	}
	return nil
}

func (p *plugin) end() {
	p.mu.Lock()
	nodes := slices.Collect(maps.Keys(p.opened))
	p.mu.Unlock()
	for _, node := range nodes {
		p.close(node)
	}
	if p.pods != nil {
		p.pods.end()
	}
}
