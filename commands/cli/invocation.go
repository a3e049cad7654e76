package cli

import (
	"context"
	"slices"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/output"
)

// Invocation is one command line of a process. The checks of a verb's arguments read it.
type Invocation struct {
	*Process
	Printer *Printer // for warnings, and for the format of results
	Compat  bool     // crictl's defaults, output and exit codes

	line    argv.Line
	several bool            // the command line is for several endpoints
	merged  *output.Options // options for the merged result of several endpoints
	run     func(ctx context.Context, p *Process, args []string) int
}

func NewInvocation(p *Process, compat bool) *Invocation {
	in := &Invocation{Process: p, Printer: NewPrinter(p)}
	in.setCompat(compat)
	return in
}

func (in *Invocation) setCompat(compat bool) { in.Compat, in.Printer.Compat = compat, compat }

// IsCrictlRun reports whether a command line of run has crictl's form, CONTAINER-CONFIG POD-CONFIG, or names a single
// file with both configurations.
func (in *Invocation) IsCrictlRun() bool { return in.line.IsCrictlRun() }

// RunLine does not pass on these flags. Without a cluster it sets the endpoints itself.
var (
	ownFlags      = []string{"error-format", "color", "profile-cpu", "profile-mem"}
	endpointFlags = []string{"runtime-endpoint", "image-endpoint"}
)

// RunLine runs another command line with the streams of p and returns the exit status. The command line opens its own
// connection to the endpoints of conn, or to the node of a cluster. It has the global flags of in except ownFlags.
func (in *Invocation) RunLine(ctx context.Context, p Process, conn *client.Conn, args ...string) int {
	line, left := []string{"crishim"}, ownFlags
	if in.Cluster == nil {
		line = append(line, "--runtime-endpoint="+conn.RuntimeEndpoint, "--image-endpoint="+conn.ImageEndpoint)
		left = slices.Concat(left, endpointFlags)
	}
	for _, arg := range in.line.Args[1:] {
		if !argv.IsFlag(arg) {
			break
		}
		if name := argv.FlagName(arg); !slices.Contains(left, name) {
			line = append(line, arg)
		}
	}
	p.Exit = nil
	return in.run(ctx, &p, append(line, args...))
}
