package node

import (
	"cmp"
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
	"github.com/crishim/crishim/shim"
)

type endpointsOptions struct{ cli.View }

// NewEndpoints returns the verb that lists the probed endpoints and marks the one in use.
func NewEndpoints(in *cli.Invocation) *cli.Verb {
	o := &endpointsOptions{}
	return &cli.Verb{
		Usage: "Show which runtime is used, and why",
		Description: cli.WithExamples("Probes every endpoint where a CRI runtime or a Docker engine may listen, and marks the endpoint that other commands use.",
			"crishim endpoints", "crishim endpoints -o json"),
		Flags: o.ListFlags(output.EndpointColumns, "endpoints"),
		Check: o.CheckAlone,
		Run:   o.run,
	}
}

func (o *endpointsOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	rows, err := probedEndpoints(ctx, printer, connector)
	if err != nil && len(rows) == 0 {
		return err
	}
	return cli.Join(output.Endpoints(printer.Out, rows, o.Options), err)
}

// probedEndpoints returns all candidates, even if none is usable.
func probedEndpoints(ctx context.Context, printer *cli.Printer, connector *cli.Connector) (rows []output.Endpoint, err error) {
	options, err := connector.ClientOptions()
	if err != nil {
		return nil, err
	}
	embedded, err := connector.ShimOptions()
	if err != nil {
		return nil, err
	}
	attempts, failed := client.Discover(ctx, options)
	for _, a := range attempts {
		if a.State == client.StateReady && (a.Kind == client.KindEngine || a.Chosen) {
			a.Detail += networkOfNewPods(ctx, printer, a, options, embedded)
		}
		rows = append(rows, output.Endpoint{Endpoint: a.Endpoint, Kind: cmp.Or(a.Name, a.Kind), State: a.State, Detail: a.Detail, Chosen: a.Chosen})
	}
	return rows, failed
}

// networkOfNewPods returns a text about the network of new pods: for an engine the network of the embedded dockershim,
// for `crishim serve` the network in its status. For other CRI runtimes the text is empty.
func networkOfNewPods(ctx context.Context, printer *cli.Printer, a client.Candidate, options client.Options, embedded shim.Options) string {
	plugin := embedded.Network.Plugin
	if a.Kind != client.KindEngine {
		options.RuntimeEndpoint, options.ImageEndpoint = a.Endpoint, ""
		plugin = askNetwork(ctx, printer, options)
	}
	switch plugin {
	case "":
		return ""
	case shim.PluginBridge:
		return "; new pods get the engine's bridge"
	}
	return "; new pods get the network plugin " + plugin
}

// askNetwork returns the pod network in the status of a `crishim serve` process. If the call fails or another runtime
// answers, it returns "".
func askNetwork(ctx context.Context, printer *cli.Printer, options client.Options) string {
	conn, err := client.Connect(ctx, options)
	if err != nil {
		printer.Debugf("network of new pods: %v", err)
		return ""
	}
	defer conn.Close()
	r, err := conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		printer.Debugf("network of new pods: %v", err)
		return ""
	}
	var config struct {
		NetworkPlugin string `json:"networkPlugin"`
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["config"]), &config); err != nil {
		return "" // another runtime's configuration has another form
	}
	return config.NetworkPlugin
}
