// Package kube holds what CRI leaves to those who use it: the labels and annotations by which kubelets, and every
// other tool, find pods and their containers, and which of these was an init container.
package kube

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// IsDoneInit reports whether a container was an init container that has done its work, as far as that can be told without
// the manifest: it has succeeded before another container of the pod, of which newest has the newest attempts, was
// created. What else the kubelet starts, it starts at the same time.
func IsDoneInit(s *runtimeapi.ContainerStatus, newest map[string]*runtimeapi.Container) bool {
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 0 || s.GetFinishedAt() == 0 {
		return false
	}
	for _, other := range newest {
		if other.GetId() != s.GetId() && other.GetCreatedAt() >= s.GetFinishedAt() {
			return true
		}
	}
	return false
}
