package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
)

// Scope has kubectl's flags that narrow down the arguments of a verb.
type Scope struct {
	Namespace, Container string
	hasContainer         bool // the verb has -c
}

func (w *Scope) Given() bool { return w.Namespace != "" || w.Container != "" }

func (w *Scope) NamespaceFlag() urfave.Flag {
	return StringFlag(&w.Namespace, "namespace", "Look only in `NAMESPACE`", "n")
}

func (w *Scope) ContainerFlag() urfave.Flag {
	w.hasContainer = true
	return StringFlag(&w.Container, "container", "Select container `NAME` of the pod", "c")
}

// InNamespace returns ref with the namespace, unless ref has a namespace itself.
func (w *Scope) InNamespace(ref string) string {
	if w.Namespace == "" || strings.Contains(ref, "/") {
		return ref
	}
	return w.Namespace + "/" + ref
}

// Query returns the lookup of ref with these flags.
func (w *Scope) Query(ref string, want client.Want) client.Query {
	return client.Query{Ref: ref, Want: want, Namespace: w.Namespace, Container: w.Container, ContainerFlag: w.hasContainer}
}

// ContainerPath has the names of a container, its pod and its namespace; the pod and the namespace may be unknown.
type ContainerPath struct{ Namespace, Pod, Container string }

// ContainerPathOf returns the pod and the namespace in a container's labels, and the container's name in its metadata,
// or its id if it has no name.
func ContainerPathOf(c *runtimeapi.Container) ContainerPath {
	labels := c.GetLabels()
	return ContainerPath{labels[kube.LabelPodNamespace], labels[kube.LabelPodName], cmp.Or(c.GetMetadata().GetName(), c.GetId())}
}

// Name returns pod/container, or the container if the pod is not known.
func (s ContainerPath) Name() string {
	if s.Pod == "" {
		return s.Container
	}
	return s.Pod + "/" + s.Container
}

// FullName returns Name with the namespace, if it is known.
func (s ContainerPath) FullName() string {
	if s.Pod == "" || s.Namespace == "" {
		return s.Name()
	}
	return s.Namespace + "/" + s.Name()
}

// PodRef returns the pod's name in a command line, with the namespace unless it is default.
func (s ContainerPath) PodRef() string {
	return strings.TrimLeft(strings.TrimPrefix(s.Namespace+"/"+s.Pod, "default/"), "/")
}

// ContainerName returns pod/container for messages, or only the container's name if its labels do not name the pod.
func ContainerName(c *runtimeapi.Container) string { return ContainerPathOf(c).Name() }

// title returns a name with the beginning of the id, because all attempts have the same name.
func title(name, id string) string { return fmt.Sprintf("%s (%.13s)", name, id) }

// PodPath returns namespace/name of a pod.
func PodPath(m *runtimeapi.PodSandboxMetadata) string {
	return strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/")
}

// PodNames lists the names of all sandboxes by id, for containers without the kubelet's labels.
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

// NamePods returns containers with the labels of their pods' names. It adds the labels to containers that were created
// without them.
func NamePods(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container) []*runtimeapi.Container {
	unnamed := func(c *runtimeapi.Container) bool { return c.GetLabels()[kube.LabelPodName] == "" }
	if !slices.ContainsFunc(containers, unnamed) {
		return containers
	}
	pods, err := PodNames(ctx, conn)
	if err != nil {
		return containers
	}
	named := make([]*runtimeapi.Container, len(containers))
	for i, c := range containers {
		named[i] = c
		if pod := pods[c.GetPodSandboxId()]; pod != nil && unnamed(c) {
			named[i] = proto.CloneOf(c)
			labels := map[string]string{kube.LabelPodName: pod.GetName(), kube.LabelPodNamespace: pod.GetNamespace()}
			maps.Copy(labels, c.GetLabels())
			named[i].Labels = labels
		}
	}
	return named
}

// PodNamesRepeat reports whether containers of several namespaces have the same pod/container name.
func PodNamesRepeat(containers []*runtimeapi.Container) bool {
	seen := map[string]string{}
	for _, c := range containers {
		from := ContainerPathOf(c)
		if other, ok := seen[from.Name()]; ok && other != from.Namespace {
			return true
		}
		seen[from.Name()] = from.Namespace
	}
	return false
}

// PodTypes are kubectl's words for a pod before its name.
var PodTypes = []string{"pod", "pods", "po"}
