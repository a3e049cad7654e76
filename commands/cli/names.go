package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
)

// Within narrows down what the arguments of a verb name, as kubectl's flags do.
type Within struct {
	Namespace, Container string
	hasContainer         bool // the verb has -c
}

// Given reports whether a flag narrows it down.
func (w *Within) Given() bool { return w.Namespace != "" || w.Container != "" }

// NamespaceFlag returns -n, --namespace.
func (w *Within) NamespaceFlag() urfave.Flag {
	return StringFlag(&w.Namespace, "namespace", "look in `NAMESPACE` only", "n")
}

// ContainerFlag returns -c, --container.
func (w *Within) ContainerFlag() urfave.Flag {
	w.hasContainer = true
	return StringFlag(&w.Container, "container", "the container `NAME` of the pod that is named", "c")
}

// InNamespace returns what a user named with the namespace, as other verbs take it.
func (w *Within) InNamespace(ref string) string {
	if w.Namespace == "" || strings.Contains(ref, "/") {
		return ref
	}
	return w.Namespace + "/" + ref
}

// Query returns the question for what a user named.
func (w *Within) Query(ref string, want client.Want) client.Query {
	return client.Query{Ref: ref, Want: want, Namespace: w.Namespace, Container: w.Container, ContainerFlag: w.hasContainer}
}

// Source names a container by its labels.
type Source struct{ Namespace, Pod, Container string }

// SourceOf returns the names on a container's labels.
func SourceOf(c *runtimeapi.Container) Source {
	labels := c.GetLabels()
	return Source{labels[kube.LabelPodNamespace], labels[kube.LabelPodName], cmp.Or(c.GetMetadata().GetName(), c.GetId())}
}

// Name is pod/container, or the container alone where the pod is not known.
func (s Source) Name() string {
	if s.Pod == "" {
		return s.Container
	}
	return s.Pod + "/" + s.Container
}

// FullName is name with the namespace, where that is known.
func (s Source) FullName() string {
	if s.Pod == "" || s.Namespace == "" {
		return s.Name()
	}
	return s.Namespace + "/" + s.Name()
}

// PodRef returns what a pod is called in a command line: its name, with the namespace where that is not default.
func (s Source) PodRef() string {
	return strings.TrimLeft(strings.TrimPrefix(s.Namespace+"/"+s.Pod, "default/"), "/")
}

// ContainerName returns how messages name a container: pod/name where the pod is
// known, its id where it has no name.
func ContainerName(c *runtimeapi.Container) string { return SourceOf(c).Name() }

// title returns a name with the beginning of the id, which distinguishes attempts.
func title(name, id string) string { return fmt.Sprintf("%s (%.13s)", name, id) }

// PodPath returns namespace/name of a pod.
func PodPath(m *runtimeapi.PodSandboxMetadata) string {
	return strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/")
}

// PodNames lists the names of all sandboxes by id, for containers that were
// made without the kubelet's labels.
func PodNames(ctx context.Context, conn *client.Conn) (map[string]*runtimeapi.PodSandboxMetadata, error) {
	res, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	names := make(map[string]*runtimeapi.PodSandboxMetadata, len(res.GetItems()))
	for _, pod := range res.GetItems() {
		names[pod.GetId()] = pod.GetMetadata()
	}
	return names, nil
}

// NamePods returns the containers with the labels of their pods' names, which those have
// not that were made without a kubelet. What the runtime sent is not changed.
func NamePods(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container) []*runtimeapi.Container {
	complete := true
	for _, c := range containers {
		complete = complete && c.GetLabels()[kube.LabelPodName] != ""
	}
	if complete {
		return containers
	}
	pods, err := PodNames(ctx, conn)
	if err != nil {
		return containers // the names are a help, no more
	}
	named := make([]*runtimeapi.Container, len(containers))
	for i, c := range containers {
		named[i] = c
		if pod := pods[c.GetPodSandboxId()]; pod != nil && c.GetLabels()[kube.LabelPodName] == "" {
			named[i] = proto.CloneOf(c)
			labels := map[string]string{kube.LabelPodName: pod.GetName(), kube.LabelPodNamespace: pod.GetNamespace()}
			maps.Copy(labels, c.GetLabels())
			named[i].Labels = labels
		}
	}
	return named
}

// NeedNamespaces reports whether pod/container does not tell containers apart: pods of one
// name are in several namespaces.
func NeedNamespaces(containers []*runtimeapi.Container) bool {
	seen := map[string]string{}
	for _, c := range containers {
		from := SourceOf(c)
		if other, ok := seen[from.Name()]; ok && other != from.Namespace {
			return true
		}
		seen[from.Name()] = from.Namespace
	}
	return false
}

// PodTypes are kubectl's words for a pod, which people type before its name.
var PodTypes = []string{"pod", "pods", "po"}
