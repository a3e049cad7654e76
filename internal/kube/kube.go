// Package kube holds what CRI leaves to those who use it: the labels and annotations by which kubelets, and every
// other tool, find pods and their containers, and which of these was an init container. It also names what
// crishim's own pods in a cluster have in common.
package kube

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// OwnImages begins the names of the images that are built in, which no registry has and no user's image may have.
const OwnImages = "crishim.local/"

// APIVersion is the version of the runtime interface that kubelets ask for, and insist on: their kubeRuntimeAPIVersion.
const APIVersion = "0.1.0"

// Labels of pods and containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	// LabelDebug is on containers that `crishim debug` makes: the id of the container they are for.
	LabelDebug = "io.crishim.debug"
)

// Annotations that kubelets, and crishim's own pod runtime, put on containers.
const (
	AnnotationHash         = "io.kubernetes.container.hash"
	AnnotationRestartCount = "io.kubernetes.container.restartCount"
	AnnotationPorts        = "io.kubernetes.container.ports" // as JSON
)

// AnnotationRun is on the sandbox that `crishim run` makes for one container.
const AnnotationRun = "io.crishim.run"

// AnnotationPaused is on what crishim's dockershim lists of a paused container, which is a running one for CRI.
const AnnotationPaused = "io.crishim.paused"

func IsPaused(c *runtimeapi.Container) bool {
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetAnnotations()[AnnotationPaused] != ""
}

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

// Names in crishim's own pods in a cluster. The DaemonSet of packaging/kubernetes has them; kubectl-crishim looks for
// its pods by them, and makes its own with them.
const (
	ClusterNamespace = "crishim"
	ClusterContainer = "crishim" // the container of a pod that command lines run in
	ClusterProgram   = "/crishim"

	LabelApp         = "app.kubernetes.io/name"
	LabelAppValue    = "crishim"
	LabelManagedBy   = "app.kubernetes.io/managed-by"
	ManagedByKubectl = "kubectl-crishim" // of the pods that end with a command line

	// LabelRights is what command lines in a pod are allowed.
	LabelRights  = "io.crishim.rights"
	RightsRead   = "read"
	RightsChange = "change" // what the runtime has
	RightsHost   = "host"   // files and mounts of the host too: apply, sync, gc
)

// Hidden first arguments of the program. They and what they mean stay as they are: kubectl-crishim and the image of its
// pods may be of different versions.
const (
	// IdleWord does nothing until a signal or the end of the runtime ends it: it keeps a container running for the execs
	// of command lines.
	IdleWord = "__idle"
	// RelayWord is followed by a verb, for those who read audit logs, and maybe by a TCP address of the loopback. It copies
	// between the standard streams and the socket of the runtime, or that address, and begins with RelayReady. It ends
	// when the other side does, and soon after its standard input.
	RelayWord  = "__relay"
	RelayReady = "ready\n"
	// NodeWord is followed by the columns of the user's terminal (0: there is none) and a command line, which the end of
	// standard input interrupts.
	NodeWord = "__node"
)
