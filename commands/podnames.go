package commands

import (
	"context"
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// namePods puts the names of their pods on containers that nobody labelled
// with them, for people to read. What the runtime sent stays as it is.
func namePods(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container) []*runtimeapi.Container {
	complete := true
	for _, c := range containers {
		complete = complete && c.GetLabels()[labelPodName] != ""
	}
	if complete {
		return containers
	}
	pods, err := podNames(ctx, conn)
	if err != nil {
		return containers // the names are a help, no more
	}
	named := make([]*runtimeapi.Container, len(containers))
	for i, c := range containers {
		named[i] = c
		if pod := pods[c.GetPodSandboxId()]; pod != nil && c.GetLabels()[labelPodName] == "" {
			named[i] = withLabels(c, map[string]string{labelPodName: pod.GetName(), labelPodNamespace: pod.GetNamespace()})
		}
	}
	return named
}

// withLabels is a container with more labels.
func withLabels(c *runtimeapi.Container, labels map[string]string) *runtimeapi.Container {
	all := maps.Clone(c.GetLabels())
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	return &runtimeapi.Container{
		Id: c.GetId(), PodSandboxId: c.GetPodSandboxId(), Metadata: c.GetMetadata(), Image: c.GetImage(),
		ImageRef: c.GetImageRef(), ImageId: c.GetImageId(), State: c.GetState(), CreatedAt: c.GetCreatedAt(),
		Labels: all, Annotations: c.GetAnnotations(),
	}
}

// needNamespaces says that pod/container does not tell containers apart: pods of one
// name are in several namespaces.
func needNamespaces(containers []*runtimeapi.Container) bool {
	seen := map[string]string{}
	for _, c := range containers {
		from := sourceOf(c)
		if other, ok := seen[from.name()]; ok && other != from.namespace {
			return true
		}
		seen[from.name()] = from.namespace
	}
	return false
}
