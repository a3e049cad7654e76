// Package kube holds conventions on top of CRI: the labels and annotations by which kubelets and other tools find pods
// and containers, and the detection of init containers. It also has the names of crishim's own pods in a cluster.
package kube

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// OwnImages is the prefix of built-in images. No registry has them, and users cannot use it.
const OwnImages = "crishim.local/"

// APIVersion is the version of the runtime interface that kubelets require: kubeRuntimeAPIVersion.
const APIVersion = "0.1.0"

const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	// LabelDebug labels a container of `crishim debug`. The value is the id of the debugged container.
	LabelDebug = "io.crishim.debug"
)

// Annotations of containers set by kubelets and by crishim's own pod runtime.
const (
	AnnotationHash         = "io.kubernetes.container.hash"
	AnnotationRestartCount = "io.kubernetes.container.restartCount"
	AnnotationPorts        = "io.kubernetes.container.ports" // as JSON
)

// AnnotationRun marks the sandbox that `crishim run` creates for one container.
const AnnotationRun = "io.crishim.run"

// AnnotationPaused marks a paused container in the lists of crishim's dockershim. For CRI such a container is running.
const AnnotationPaused = "io.crishim.paused"

func IsPaused(c *runtimeapi.Container) bool {
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetAnnotations()[AnnotationPaused] != ""
}

// IsDoneInit reports whether a container was an init container that has completed, as far as this can be determined
// without the manifest: it succeeded before another container of the pod was created. The kubelet starts all other
// containers at the same time. newest has the newest attempts of the pod's containers.
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

// Names of crishim's own pods in a cluster, shared by kubectl-crishim and the DaemonSet in packaging/kubernetes.
const (
	ClusterNamespace = "crishim"
	ClusterContainer = "crishim" // container in which command lines run
	ClusterProgram   = "/crishim"

	LabelApp         = "app.kubernetes.io/name"
	LabelAppValue    = "crishim"
	LabelManagedBy   = "app.kubernetes.io/managed-by"
	ManagedByKubectl = "kubectl-crishim" // value of LabelManagedBy on the pods that kubectl-crishim creates and removes

	// LabelRights is the set of permissions for command lines in a pod.
	LabelRights  = "io.crishim.rights"
	RightsRead   = "read"
	RightsChange = "change" // changes in the runtime
	RightsHost   = "host"   // changes in the runtime, the files and mounts of the host: apply, delete, sync, gc, serve
)

// Hidden first arguments of the program. They must stay compatible, because kubectl-crishim and the image of its pods
// may have different versions.
const (
	// IdleWord waits for a signal or the end of the runtime. It keeps a container running for execs.
	IdleWord = "__idle"
	// RelayWord is followed by a verb, for audit logs, and optionally a TCP address on loopback. It writes RelayReady
	// and then copies between the standard streams and the runtime's socket or the address. It ends when the runtime or
	// the address closes the connection, at the latest a few seconds after EOF on standard input.
	RelayWord  = "__relay"
	RelayReady = "ready\n"
	// NodeWord is followed by the width of the user's terminal (0: no terminal) and a command line. EOF on standard
	// input interrupts the command.
	NodeWord = "__node"
)
