// Package kube names the labels and annotations by which kubelets, and every other tool, find pods and
// their containers.
package kube

// Labels of pods and containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations that kubelets, and crishim's own pod runtime, put on containers.
const (
	AnnotationHash         = "io.kubernetes.container.hash"
	AnnotationRestartCount = "io.kubernetes.container.restartCount"
	AnnotationPorts        = "io.kubernetes.container.ports" // as JSON
)
