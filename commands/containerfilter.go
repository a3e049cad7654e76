package commands

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// containerFilter chooses containers by what flags say of them.
type containerFilter struct {
	id, pod, image  string
	name, namespace pattern
	labels          map[string]string
	selector        client.Selector
	state           *runtimeapi.ContainerState // nil: any
	newest          int                        // -1: all
}

// containerFilterFlags are the flags that readContainerFilter knows; id and
// image have a flag of their own name in some verbs only.
func containerFilterFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "containers whose name matches `REGEX`"},
		&cli.StringFlag{Name: "namespace", Usage: "containers of pods whose namespace matches `REGEX`"},
		&cli.StringFlag{Name: "pod", Aliases: []string{"p"}, Usage: "containers of `POD`: name, namespace/name or id"},
		&cli.StringFlag{Name: "image", Usage: "containers made from `IMAGE`"},
		&cli.StringFlag{Name: "state", Aliases: []string{"s"}, Usage: "containers in `STATE`: created, running, exited, unknown"},
		&cli.StringSliceFlag{Name: "label", Usage: "containers with the label `KEY=VALUE`, or KEY for any value; several must all match"},
		selectorFlag(),
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "containers in every state, not only running ones"},
	}, recencyFlags()...)
}

func readContainerFilter(c *cli.Context) (f containerFilter, err error) {
	f.id, f.pod, f.image = c.String("id"), c.String("pod"), c.String("image")
	if f.name, err = readPattern(c, "name"); err != nil {
		return f, err
	}
	if f.namespace, err = readPattern(c, "namespace"); err != nil {
		return f, err
	}
	if f.labels, f.selector, err = readLabelFilter(c); err != nil {
		return f, err
	}
	if f.newest, err = recency(c); err != nil {
		return f, err
	}
	state, given, err := oneOf(c, "state", containerStates())
	if err != nil {
		return f, err
	}
	switch {
	case f.newest >= 0:
	case given: // --all beside it says no more
		f.state = &state
	case c.Bool("all"):
	default:
		running := runtimeapi.ContainerState_CONTAINER_RUNNING
		f.state = &running
	}
	return f, nil
}

// request is the part of the filter that the runtime can do.
func (f containerFilter) request(podID string) *runtimeapi.ListContainersRequest {
	filter := &runtimeapi.ContainerFilter{PodSandboxId: podID, LabelSelector: bothLabels(f.labels, f.selector)}
	if f.state != nil {
		filter.State = &runtimeapi.ContainerStateValue{State: *f.state}
	}
	return &runtimeapi.ListContainersRequest{Filter: filter}
}

// refine does the rest, and again what the runtime may have ignored.
func (f containerFilter) refine(all []*runtimeapi.Container, podID string, imageIDs []string) []*runtimeapi.Container {
	var kept []*runtimeapi.Container
	for _, c := range all {
		if f.matches(c) && (podID == "" || c.GetPodSandboxId() == podID) && (f.image == "" || madeFrom(c, imageIDs)) {
			kept = append(kept, c)
		}
	}
	return newest(kept, f.newest)
}

func (f containerFilter) matches(c *runtimeapi.Container) bool {
	return strings.HasPrefix(c.GetId(), f.id) &&
		(f.state == nil || c.GetState() == *f.state) &&
		f.name.matches(c.GetMetadata().GetName()) &&
		hasLabels(c.GetLabels(), f.labels) && f.selector.Matches(c.GetLabels())
}

func madeFrom(c *runtimeapi.Container, images []string) bool {
	for _, image := range images {
		if image != "" && (c.GetImageRef() == image || c.GetImageId() == image || c.GetImage().GetImage() == image) {
			return true
		}
	}
	return false
}

// list asks the runtime for the containers that the filter chooses. The options
// are for that call.
func (f containerFilter) list(ctx context.Context, conn *client.Conn) ([]*runtimeapi.Container, error) {
	podID := ""
	if f.pod != "" {
		pod, err := conn.Pod(ctx, f.pod, client.Any)
		if err != nil {
			return nil, err
		}
		podID = pod.GetId()
	}
	images, err := f.imageIDs(ctx, conn)
	if err != nil {
		return nil, err
	}
	res, err := conn.Runtime.ListContainers(ctx, f.request(podID))
	if err != nil {
		return nil, err
	}
	containers, err := f.inNamespace(ctx, conn, res.GetContainers())
	if err != nil {
		return nil, err
	}
	return f.refine(containers, podID, images), nil
}

// inNamespace drops containers of other namespaces. Only a kubelet labels them with their
// pod's; of the rest the sandbox knows it.
func (f containerFilter) inNamespace(ctx context.Context, conn *client.Conn, all []*runtimeapi.Container) ([]*runtimeapi.Container, error) {
	if f.namespace.Regexp == nil {
		return all, nil
	}
	pods, err := podNames(ctx, conn)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c *runtimeapi.Container) bool {
		return !f.namespace.matches(cmp.Or(c.GetLabels()[labelPodNamespace], pods[c.GetPodSandboxId()].GetNamespace()))
	}), nil
}

// imageIDs are the ways in which a container may name the image asked for.
func (f containerFilter) imageIDs(ctx context.Context, conn *client.Conn) ([]string, error) {
	if f.image == "" {
		return nil, nil
	}
	res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: f.image}})
	if err != nil {
		return nil, err
	}
	image := res.GetImage()
	ids := append([]string{f.image, image.GetId()}, image.GetRepoTags()...)
	return append(ids, image.GetRepoDigests()...), nil
}
