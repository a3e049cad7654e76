package output

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

type (
	container = *runtimeapi.Container
	pod       = *runtimeapi.PodSandbox
)

// newestFirst orders a list by time of creation, then id.
func newestFirst[T interface {
	GetCreatedAt() int64
	GetId() string
}](rows []T) []T {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b T) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return rows
}

var containerColumns = []column[container]{
	{name: "CONTAINER", value: func(c container, o Options) string { return shortID(c.GetId(), o) }},
	{name: "IMAGE", shrink: true, value: containerImage},
	{name: "CREATED", less: by(container.GetCreatedAt), value: func(c container, o Options) string { return age(c.GetCreatedAt(), o) }},
	{name: "STATE", value: func(c container, _ Options) string { return enumWord(c.GetState().String()) }},
	{name: "NAME", shrink: true, value: func(c container, _ Options) string { return orUnknown(containerName(c)) }},
	{name: "ATTEMPT", spare: 2, less: by(containerAttempt), value: func(c container, _ Options) string { return fmt.Sprint(containerAttempt(c)) }},
	{name: "POD ID", spare: 1, value: func(c container, o Options) string { return shortID(c.GetPodSandboxId(), o) }},
	{name: "POD", shrink: true, value: func(c container, o Options) string { return orUnknown(podNameOf(c, o)) }},
	{name: "NAMESPACE", shrink: true, value: func(c container, o Options) string { return orUnknown(podNamespaceOf(c, o)) }},
	{name: "IMAGE ID", wide: true, value: func(c container, o Options) string { return shortID(c.GetImageId(), o) }},
	{name: "IMAGE REF", wide: true, shrink: true, value: func(c container, _ Options) string { return c.GetImageRef() }},
}

// containerImage is the reference the container was made from; an id is cut.
func containerImage(c container, o Options) string {
	image := cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage())
	if image == c.GetImageId() || image == c.GetImageRef() && len(strings.TrimPrefix(image, "sha256:")) == 64 {
		return shortID(image, o)
	}
	return image
}

// containerName is the name in the metadata or, where a runtime leaves the
// metadata empty, in the kubelet's label.
func containerName(c container) string {
	return cmp.Or(c.GetMetadata().GetName(), c.GetLabels()[kube.LabelContainerName])
}

func containerAttempt(c container) uint32 { return c.GetMetadata().GetAttempt() }

// podNameOf is the name of c's pod: its label or, where a container was made
// without the kubelet's labels, its sandbox's name.
func podNameOf(c container, o Options) string {
	return cmp.Or(c.GetLabels()[kube.LabelPodName], o.Pods[c.GetPodSandboxId()].GetName())
}

func podNamespaceOf(c container, o Options) string {
	return cmp.Or(c.GetLabels()[kube.LabelPodNamespace], o.Pods[c.GetPodSandboxId()].GetNamespace())
}

// NeedsPods reports whether the view of containers that o asks for would be
// better with o.Pods: a table or names, and a container without pod labels.
func NeedsPods(containers []container, o Options) bool {
	if o.Quiet || o.Format.ForMachines() && o.Format.Kind != Name {
		return false
	}
	return slices.ContainsFunc(containers, func(c container) bool {
		return c.GetLabels()[kube.LabelPodName] == "" || c.GetLabels()[kube.LabelPodNamespace] == ""
	})
}

// Containers writes a list of containers, the newest first.
func Containers(w io.Writer, r *runtimeapi.ListContainersResponse, o Options) error {
	rows := newestFirst(r.GetContainers())
	return render(w, view{
		fallback: Table, items: messages(rows), wrap: list("containers"), ids: each(rows, container.GetId),
		names: each(rows, func(c container) string { return containerReference(c, o) }),
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, containerColumns, o) },
		long:  func(w io.Writer, o Options) error { return longContainers(w, rows, o) },
	}, o)
}

// containerReference is what a command line may name the container by:
// namespace/pod/container, or its id where these are not known.
func containerReference(c container, o Options) string {
	namespace, pod, name := podNamespaceOf(c, o), podNameOf(c, o), containerName(c)
	if namespace == "" || pod == "" || name == "" {
		return c.GetId()
	}
	return namespace + "/" + pod + "/" + name
}

var podColumns = []column[pod]{
	{name: "POD ID", value: func(p pod, o Options) string { return shortID(p.GetId(), o) }},
	{name: "CREATED", less: by(pod.GetCreatedAt), value: func(p pod, o Options) string { return age(p.GetCreatedAt(), o) }},
	{name: "STATE", value: func(p pod, _ Options) string { return enumWord(p.GetState().String()) }},
	{name: "NAME", shrink: true, value: func(p pod, _ Options) string { return orUnknown(podName(p)) }},
	{name: "NAMESPACE", shrink: true, value: func(p pod, _ Options) string { return orUnknown(podNamespace(p)) }},
	{name: "ATTEMPT", spare: 2, less: by(podAttempt), value: func(p pod, _ Options) string { return fmt.Sprint(podAttempt(p)) }},
	{name: "RUNTIME", spare: 1, value: func(p pod, _ Options) string { return cmp.Or(p.GetRuntimeHandler(), "(default)") }},
	{name: "UID", wide: true, value: func(p pod, _ Options) string { return p.GetMetadata().GetUid() }},
}

func podName(p pod) string {
	return cmp.Or(p.GetMetadata().GetName(), p.GetLabels()[kube.LabelPodName])
}

func podNamespace(p pod) string {
	return cmp.Or(p.GetMetadata().GetNamespace(), p.GetLabels()[kube.LabelPodNamespace])
}

func podAttempt(p pod) uint32 { return p.GetMetadata().GetAttempt() }

// Pods writes a list of pod sandboxes, the newest first.
func Pods(w io.Writer, r *runtimeapi.ListPodSandboxResponse, o Options) error {
	rows := newestFirst(r.GetItems())
	return render(w, view{
		fallback: Table, items: messages(rows), wrap: list("items"), ids: each(rows, pod.GetId), names: each(rows, podReference),
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, podColumns, o) },
		long:  func(w io.Writer, o Options) error { return longPods(w, rows, o) },
	}, o)
}

// podReference is namespace/pod, or the id where these are not known.
func podReference(p pod) string {
	if podName(p) == "" || podNamespace(p) == "" {
		return p.GetId()
	}
	return podNamespace(p) + "/" + podName(p)
}

// none stands for a name, tag or digest that an image does not have.
const none = "<none>"

// imageRow is one line of the image table: an image has one for each tag.
type imageRow struct {
	image             *runtimeapi.Image
	name, tag, digest string
}

var imageColumns = []column[imageRow]{
	{name: "IMAGE", shrink: true, value: func(r imageRow, _ Options) string { return r.name }},
	{name: "TAG", shrink: true, value: func(r imageRow, _ Options) string { return r.tag }},
	{name: "DIGEST", wide: true, value: func(r imageRow, o Options) string { return shortID(r.digest, o) }},
	{name: "IMAGE ID", value: func(r imageRow, o Options) string { return shortID(r.image.GetId(), o) }},
	{
		name: "SIZE", less: by(func(r imageRow) uint64 { return r.image.GetSize() }),
		value: func(r imageRow, _ Options) string { return size(r.image.GetSize()) },
	},
	{name: "PINNED", wide: true, value: func(r imageRow, _ Options) string { return strconv.FormatBool(r.image.GetPinned()) }},
}

// imageRows returns the lines of one image: one for each tag or, without tags,
// one for its digest.
func imageRows(image *runtimeapi.Image) []imageRow {
	name, digest, found := strings.Cut(first(image.GetRepoDigests()), "@")
	if !found {
		name, digest = none, none
	}
	if len(image.GetRepoTags()) == 0 {
		return []imageRow{{image, name, none, digest}}
	}
	return each(image.GetRepoTags(), func(ref string) imageRow {
		if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') { // else it is of a registry's port
			return imageRow{image, ref[:i], ref[i+1:], digest}
		}
		return imageRow{image, ref, none, digest}
	})
}

// Images writes a list of images, ordered by first tag, then digest, then id.
func Images(w io.Writer, r *runtimeapi.ListImagesResponse, o Options) error {
	images := slices.Clone(r.GetImages())
	slices.SortStableFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(first(a.GetRepoTags()), first(b.GetRepoTags())),
			cmp.Compare(first(a.GetRepoDigests()), first(b.GetRepoDigests())), cmp.Compare(a.GetId(), b.GetId()))
	})
	return render(w, view{
		fallback: Table, items: messages(images), wrap: list("images"),
		ids: each(images, (*runtimeapi.Image).GetId), names: each(images, imageReference),
		table: func(w io.Writer, o Options) error {
			columns := slices.Clone(imageColumns)
			for i, c := range columns { // those that have a flag of their own are in the plain table then
				if c.name == "DIGEST" && o.Digests || c.name == "PINNED" && o.Pinned {
					columns[i].wide = false
				}
			}
			return writeTable(w, slices.Concat(each(images, imageRows)...), columns, o)
		},
		long: func(w io.Writer, _ Options) error { return longImages(w, images) },
	}, o)
}

// imageReference is the shortest lasting way to name an image.
func imageReference(image *runtimeapi.Image) string {
	return cmp.Or(first(image.GetRepoTags()), first(image.GetRepoDigests()), image.GetId())
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
