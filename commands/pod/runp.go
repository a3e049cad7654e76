package pod

import (
	"context"
	"slices"
	"time"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type runpOptions struct {
	pod     *runtimeapi.PodSandboxConfig
	handler string
	cancel  time.Duration
	dryRun  bool
	dirs    pod.Dirs
}

func NewRunp(in *cli.Invocation) *cli.Verb {
	o := &runpOptions{dirs: in.PodDirs()}
	return &cli.Verb{
		Usage:     "Run a pod",
		ArgsUsage: "POD-CONFIG",
		Args:      cli.CompleteFiles,
		Description: cli.WithExamples("Creates a pod from a configuration in JSON or YAML (- for stdin) and prints its ID. A missing uid is generated.",
			"crishim runp pod.json", "crishim runp --dry-run pod.yaml"),
		Subcommands: []cli.Entry{cli.NewSchema("runp", "pod")},
		Flags: []urfave.Flag{
			cli.StringFlag(&o.handler, "runtime", "Use the runtime `HANDLER` for the pod", "r"),
			cli.CancelFlag(&o.cancel),
			cli.DryRunFlag(&o.dryRun),
		},
		Check: o.check,
		Run:   o.run,
	}
}

func (o *runpOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	if err = cli.ArgCount(c, 1, 1); err != nil {
		return err
	}
	o.pod, err = cli.ReadPodFile(in.In, c.Args().First())
	return err
}

func (o *runpOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	cli.SetPodDefaults(o.pod)
	if o.dryRun {
		return cli.PrintRequest(printer.Out, &runtimeapi.RunPodSandboxRequest{Config: o.pod, RuntimeHandler: o.handler})
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	id, err := cli.RunPod(ctx, conn, o.dirs, o.pod, o.handler, cli.CancelTimeout(o.cancel))
	if err != nil && !printer.Compat {
		err = hintAtPod(ctx, conn, o.pod.GetMetadata(), err)
	}
	if err != nil {
		return err
	}
	return printer.Say("%s", id)
}

// hintAtPod adds to an error how to remove the pod with the same metadata, if there is one.
func hintAtPod(ctx context.Context, conn *client.Conn, m *runtimeapi.PodSandboxMetadata, err error) error {
	pods, _ := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}) // if the list fails, err gets no hint
	if slices.ContainsFunc(pods.GetItems(), func(p *runtimeapi.PodSandbox) bool { return proto.Equal(p.GetMetadata(), m) }) {
		return cli.WithHint(err, "`crishim rmp -f %s` removes the pod that is there", shellwords.Quote(cli.PodPath(m)))
	}
	return err
}
