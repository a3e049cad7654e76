package output

import (
	"cmp"
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Event writes one container event: a line for people, a document for
// machines. Its default is crictl's JSON.
func Event(w io.Writer, e *runtimeapi.ContainerEventResponse, o Options) error {
	v := messageView(e)
	v.ids = func() []string { return []string{e.GetContainerId()} }
	v.names = func() []string { return []string{e.GetContainerId()} }
	v.table = func(w io.Writer, o Options) error {
		name := ""
		for _, c := range e.GetContainersStatuses() {
			if c.GetId() == e.GetContainerId() {
				name = c.GetMetadata().GetName()
			}
		}
		pod := e.GetPodSandboxStatus().GetMetadata()
		_, err := fmt.Fprintf(w, "%s %-8s %s %s/%s %s\n", timestamp(e.GetCreatedAt(), o), enumWord(eventWord(e)),
			shortID(e.GetContainerId(), o), Sanitize(orUnknown(pod.GetNamespace())), Sanitize(orUnknown(pod.GetName())), Sanitize(cmp.Or(name, "(pod)")))
		return err
	}
	return render(w, v, o)
}

// eventWord is CREATED out of CONTAINER_CREATED_EVENT, with its first part.
func eventWord(e *runtimeapi.ContainerEventResponse) string {
	const suffix = len("_EVENT")
	s := e.GetContainerEventType().String()
	if len(s) > suffix {
		return s[:len(s)-suffix]
	}
	return s
}

// Metrics writes what ListPodSandboxMetrics answered, under crictl's root.
func Metrics(w io.Writer, r *runtimeapi.ListPodSandboxMetricsResponse, o Options) error {
	return Message(w, r, o)
}

// MetricDescriptors writes what ListMetricDescriptors answered.
func MetricDescriptors(w io.Writer, r *runtimeapi.ListMetricDescriptorsResponse, o Options) error {
	return Message(w, r, o)
}
