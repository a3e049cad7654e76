// Package kube names the labels by which kubelets, and every other tool, find pods and
// their containers.
package kube

// Labels of pods and containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// AnnotationHash is of containers that a kubelet, or crishim's own pod runtime, has made from a manifest.
const AnnotationHash = "io.kubernetes.container.hash"
