package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/node/checkup"
	"github.com/crishim/crishim/output"
)

type doctorOptions struct{ cli.View }

// NewDoctor returns the verb that checks everything that commands depend on.
func NewDoctor(in *cli.Invocation) *cli.Verb {
	o := &doctorOptions{}
	return &cli.Verb{
		Usage: "Check the runtime and its dependencies",
		Description: cli.WithExamples("Checks the config file, every endpoint, the runtime's version and conditions, CNI, cgroup driver, image filesystem, "+
			"streaming server and live-restore, and suggests a next step for each problem. It changes nothing. Exits with status 1 if a check fails.",
			"crishim doctor", "crishim doctor -o json"),
		Flags: o.ListFlags(output.FindingColumns, "names of checks"),
		Check: o.CheckAlone,
		Run:   o.run,
	}
}

func (o *doctorOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	findings := examine(ctx, connector)
	failures := 0
	for _, f := range findings {
		if f.State == output.FindingFailed {
			failures++
		}
	}
	err := output.Findings(printer.Out, findings, o.Options)
	if failures > 0 {
		err = cli.Join(err, fmt.Errorf("%d of %d checks failed", failures, len(findings)))
	}
	return err
}

// examine makes all checks. The first is of the settings, and may quote files.
func examine(ctx context.Context, connector *cli.Connector) []output.Finding {
	options, err := connector.ClientOptions()
	findings := []output.Finding{settingsFinding(connector, err)}
	if err != nil {
		return findings
	}
	attempts, err := client.Discover(ctx, options)
	findings = append(findings, checkup.Endpoints(attempts)...)
	if err == nil {
		var conn *client.Conn
		if conn, err = client.Connect(ctx, options); err == nil {
			defer conn.Close()
			return append(findings, checkup.Runtime(ctx, conn, checkup.Host{Hidden: !conn.SeesHost(), Dial: conn.DialThere})...)
		}
	}
	// Only the first line: the findings of checkup.Endpoints already list the candidates.
	text, _, more := strings.Cut(err.Error(), "\n")
	if more {
		text = strings.TrimSuffix(text, ":")
	}
	return append(findings, output.Finding{State: output.FindingFailed, Check: "runtime", Detail: text, Hint: cli.HintOf(err)})
}

// settingsFinding reports the error of the settings, or the config file if err is nil.
func settingsFinding(connector *cli.Connector, err error) output.Finding {
	f := output.Finding{State: output.FindingOK, Check: "config file"}
	config, broken := connector.Config()
	switch {
	case broken != nil:
		f.State, f.Detail, f.Hint = output.FindingFailed, broken.Error(), cli.HintOf(broken)
	case err != nil:
		f = output.Finding{State: output.FindingFailed, Check: "settings", Detail: err.Error(), Hint: cli.HintOf(err)}
	case config.Exists():
		f.Detail = config.Path
	default:
		f.State, f.Detail = output.FindingSkipped, "there is none"
	}
	return f
}
