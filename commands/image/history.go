package image

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type historyOptions struct {
	cli.View
	image string
}

func NewHistory(in *cli.Invocation) *cli.Verb {
	o := &historyOptions{}
	return &cli.Verb{
		Usage:     "Show the history of an image",
		ArgsUsage: "IMAGE",
		Args:      cli.First(cli.CompleteImages, nil),
		Description: cli.WithExamples("Lists the build steps of an image, the last one first. Sizes are of unpacked layers, if the runtime reports them.",
			"crishim history busybox", "crishim history --no-trunc -o json busybox"),
		Flags:  o.TableFlags(output.HistoryColumns),
		Images: true,
		Check:  o.check,
		RunOn:  o.run,
	}
}

func (o *historyOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if err := cli.ArgCount(c, 1, 1); err != nil {
		return err
	}
	o.image = c.Args().First()
	return o.Check(in)
}

// imageConfig is an image's configuration in the verbose status. Docker's history has sizes, and lists the last step
// first.
type imageConfig struct {
	Spec struct {
		History []struct {
			Created    json.RawMessage // a time, or Docker's seconds
			CreatedBy  string
			BuildStep  string `json:"created_by"` // the build step in OCI's configuration
			Comment    string
			Size       *int64
			ID         string `json:"Id"`
			EmptyLayer bool   `json:"empty_layer"`
		}
		RootFS struct {
			DiffIDs []digest.Digest `json:"diff_ids"`
		}
	} `json:"imageSpec"`
}

func (o *historyOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	res, err := cli.ImageStatus(ctx, conn, o.image, true, true)
	if err != nil {
		return err
	}
	var config imageConfig
	if err := json.Unmarshal([]byte(res.GetInfo()["info"]), &config); err != nil || len(config.Spec.RootFS.DiffIDs)+len(config.Spec.History) == 0 {
		return fmt.Errorf("Unimplemented by %s: it does not report the history of %s", pullStore{conn}.runtime(), cli.Quote(o.image)) //nolint:staticcheck // as gRPC writes the code
	}
	return output.History(printer.Out, config.steps(func() []int64 { return layerSizes(ctx, conn, config.Spec.RootFS.DiffIDs) }), o.Options)
}

// steps returns the history, the last step first. It calls sizes for the sizes of the layers if the history is not from
// Docker.
func (c *imageConfig) steps(sizes func() []int64) (steps []output.HistoryEntry) {
	docker := false
	for _, h := range c.Spec.History {
		step := output.HistoryEntry{CreatedBy: h.CreatedBy + h.BuildStep, Comment: h.Comment, Size: h.Size}
		if id, ok := strings.CutPrefix(h.ID, "sha256:"); ok { // steps without an image of their own have the id <missing>
			step.ID = id
		}
		var seconds int64
		var at time.Time
		if json.Unmarshal(h.Created, &seconds) == nil {
			at, docker = time.Unix(seconds, 0).UTC(), true
		} else if json.Unmarshal(h.Created, &at) != nil {
			at = time.Time{}
		}
		if !at.IsZero() {
			step.Created = &at
		}
		steps = append(steps, step)
	}
	if docker || len(steps) == 0 {
		return steps
	}
	layers := sizes()
	for i, h := range c.Spec.History {
		switch {
		case h.EmptyLayer:
			steps[i].Size = new(int64)
		case len(layers) > 0:
			if layers[0] >= 0 {
				steps[i].Size = &layers[0]
			}
			layers = layers[1:]
		}
	}
	slices.Reverse(steps)
	return steps
}

// layerSizes asks containerd for the sizes of unpacked layers. The size of an unknown layer is -1. layerSizes returns
// nil for other runtimes.
func layerSizes(ctx context.Context, conn *client.Conn, diffIDs []digest.Digest) []int64 {
	store, ok := containerd.Open(ctx, conn.ImageClientConn())
	if !ok {
		return nil
	}
	var config struct {
		Containerd struct{ Snapshotter string }
	}
	if res, err := conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true}); err == nil {
		// On an error the snapshotter stays empty and the default below is used. containerd 2 does not report its snapshotter.
		_ = json.Unmarshal([]byte(res.GetInfo()["config"]), &config)
	}
	if config.Containerd.Snapshotter == "" {
		config.Containerd.Snapshotter = "overlayfs"
	}
	return store.LayerSizes(ctx, config.Containerd.Snapshotter, diffIDs)
}
