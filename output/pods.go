package output

import (
	"cmp"
	"io"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

var podColumns = []column[*runtimeapi.PodSandbox]{
	{name: "POD ID", value: func(p *runtimeapi.PodSandbox, o Options) string { return shortID(p.GetId(), o) }},
	{
		name:  "CREATED",
		value: func(p *runtimeapi.PodSandbox, o Options) string { return age(p.GetCreatedAt(), o) },
		less:  func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) },
	},
	{name: "STATE", value: func(p *runtimeapi.PodSandbox, _ Options) string { return enumWord(p.GetState().String()) }},
	{name: "NAME", shrink: true, value: func(p *runtimeapi.PodSandbox, _ Options) string { return orUnknown(podName(p)) }},
	{name: "NAMESPACE", shrink: true, value: func(p *runtimeapi.PodSandbox, _ Options) string { return orUnknown(podNamespace(p)) }},
	{
		name:  "ATTEMPT",
		spare: 2,
		value: func(p *runtimeapi.PodSandbox, _ Options) string { return decimal(p.GetMetadata().GetAttempt()) },
		less: func(a, b *runtimeapi.PodSandbox) int {
			return cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt())
		},
	},
	{name: "RUNTIME", spare: 1, value: func(p *runtimeapi.PodSandbox, _ Options) string {
		return cmp.Or(p.GetRuntimeHandler(), "(default)")
	}},
	{name: "UID", wide: true, value: func(p *runtimeapi.PodSandbox, _ Options) string { return p.GetMetadata().GetUid() }},
}

func podName(p *runtimeapi.PodSandbox) string {
	return cmp.Or(p.GetMetadata().GetName(), p.GetLabels()[kube.LabelPodName])
}

func podNamespace(p *runtimeapi.PodSandbox) string {
	return cmp.Or(p.GetMetadata().GetNamespace(), p.GetLabels()[kube.LabelPodNamespace])
}

// Pods writes a list of pod sandboxes, the newest first.
func Pods(w io.Writer, r *runtimeapi.ListPodSandboxResponse, o Options) error {
	rows := slices.Clone(r.GetItems())
	slices.SortStableFunc(rows, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return render(w, view{
		fallback: Table, items: messages(rows), wrap: list("items"),
		ids:   func() []string { return each(rows, (*runtimeapi.PodSandbox).GetId) },
		names: func() []string { return each(rows, podReference) },
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, podColumns, o) },
	}, o)
}

// podReference is namespace/pod, or the id where these are not known.
func podReference(p *runtimeapi.PodSandbox) string {
	if podName(p) == "" || podNamespace(p) == "" {
		return p.GetId()
	}
	return podNamespace(p) + "/" + podName(p)
}
