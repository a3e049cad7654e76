package output

import (
	"cmp"
	"io"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

var containerColumns = []column[*runtimeapi.Container]{
	{name: "CONTAINER", value: func(c *runtimeapi.Container, o Options) string { return shortID(c.GetId(), o) }},
	{name: "IMAGE", shrink: true, value: func(c *runtimeapi.Container, o Options) string { return containerImage(c, o) }},
	{
		name:  "CREATED",
		value: func(c *runtimeapi.Container, o Options) string { return age(c.GetCreatedAt(), o) },
		less:  func(a, b *runtimeapi.Container) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) },
	},
	{name: "STATE", value: func(c *runtimeapi.Container, _ Options) string { return enumWord(c.GetState().String()) }},
	{name: "NAME", shrink: true, value: func(c *runtimeapi.Container, _ Options) string { return orUnknown(containerName(c)) }},
	{
		name:  "ATTEMPT",
		spare: 2,
		value: func(c *runtimeapi.Container, _ Options) string { return decimal(c.GetMetadata().GetAttempt()) },
		less: func(a, b *runtimeapi.Container) int {
			return cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt())
		},
	},
	{name: "POD ID", spare: 1, value: func(c *runtimeapi.Container, o Options) string { return shortID(c.GetPodSandboxId(), o) }},
	{name: "POD", shrink: true, value: func(c *runtimeapi.Container, o Options) string { return orUnknown(podNameOf(c, o)) }},
	{name: "NAMESPACE", shrink: true, value: func(c *runtimeapi.Container, o Options) string {
		return orUnknown(podNamespaceOf(c, o))
	}},
	{name: "IMAGE ID", wide: true, value: func(c *runtimeapi.Container, o Options) string { return shortID(c.GetImageId(), o) }},
	{name: "IMAGE REF", wide: true, shrink: true, value: func(c *runtimeapi.Container, _ Options) string { return c.GetImageRef() }},
}

// containerImage is the reference the container was made from; an id is cut.
func containerImage(c *runtimeapi.Container, o Options) string {
	image := c.GetImage().GetImage()
	if userImage := c.GetImage().GetUserSpecifiedImage(); userImage != "" {
		image = userImage
	}
	if image == c.GetImageId() || image == c.GetImageRef() && isDigest(image) {
		return shortID(image, o)
	}
	return image
}

// isDigest reports whether s is sha256:... or a bare 64-digit id.
func isDigest(s string) bool {
	const digits = 64
	return len(s) == digits || len(s) == len("sha256:")+digits && s[:7] == "sha256:"
}

// containerName is the name in the metadata or, where a runtime leaves the
// metadata empty, in the kubelet's label.
func containerName(c *runtimeapi.Container) string {
	return cmp.Or(c.GetMetadata().GetName(), c.GetLabels()[kube.LabelContainerName])
}

// podNameOf is the name of c's pod: its label or, where a container was made
// without the kubelet's labels, its sandbox's name.
func podNameOf(c *runtimeapi.Container, o Options) string {
	return cmp.Or(c.GetLabels()[kube.LabelPodName], o.Pods[c.GetPodSandboxId()].GetName())
}

func podNamespaceOf(c *runtimeapi.Container, o Options) string {
	return cmp.Or(c.GetLabels()[kube.LabelPodNamespace], o.Pods[c.GetPodSandboxId()].GetNamespace())
}

// NeedsPods reports whether the view of containers that o asks for would be
// better with o.Pods: a table or names, and a container without pod labels.
func NeedsPods(containers []*runtimeapi.Container, o Options) bool {
	if o.Quiet || o.Format.ForMachines() && o.Format.Kind != Name {
		return false
	}
	return slices.ContainsFunc(containers, func(c *runtimeapi.Container) bool {
		return c.GetLabels()[kube.LabelPodName] == "" || c.GetLabels()[kube.LabelPodNamespace] == ""
	})
}

// Containers writes a list of containers, the newest first.
func Containers(w io.Writer, r *runtimeapi.ListContainersResponse, o Options) error {
	rows := slices.Clone(r.GetContainers())
	slices.SortStableFunc(rows, func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return render(w, view{
		fallback: Table, items: messages(rows), wrap: list("containers"),
		ids: func() []string { return each(rows, (*runtimeapi.Container).GetId) },
		names: func() []string {
			return each(rows, func(c *runtimeapi.Container) string { return containerReference(c, o) })
		},
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, containerColumns, o) },
	}, o)
}

// containerReference is what a command line may name the container by:
// namespace/pod/container, or its id where these are not known.
func containerReference(c *runtimeapi.Container, o Options) string {
	namespace, pod, name := podNamespaceOf(c, o), podNameOf(c, o), containerName(c)
	if namespace == "" || pod == "" || name == "" {
		return c.GetId()
	}
	return namespace + "/" + pod + "/" + name
}
