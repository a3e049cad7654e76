// Package pod holds what every part of the pod runtime says about a pod: the label and
// annotation keys that the kubelet uses, the hashes that decide what has changed, and the
// state of a pod as the runtime reports it. It calls nothing.
package pod

// Annotation keys, the kubelet's own.
const (
	HashAnnotation             = "io.kubernetes.container.hash"
	RestartCountAnnotation     = "io.kubernetes.container.restartCount"
	MessagePathAnnotation      = "io.kubernetes.container.terminationMessagePath"
	MessagePolicyAnnotation    = "io.kubernetes.container.terminationMessagePolicy"
	PreStopAnnotation          = "io.kubernetes.container.preStopHandler"
	PortsAnnotation            = "io.kubernetes.container.ports"
	DeletionGraceAnnotation    = "io.kubernetes.pod.deletionGracePeriod"
	TerminationGraceAnnotation = "io.kubernetes.pod.terminationGracePeriod"

	ConfigHashAnnotation   = "kubernetes.io/config.hash"
	ConfigSeenAnnotation   = "kubernetes.io/config.seen"
	ConfigSourceAnnotation = "kubernetes.io/config.source"
	ConfigMirrorAnnotation = "kubernetes.io/config.mirror"
)

// FolderAnnotation names the folder that a pod of sync came from. It is what keeps sync
// away from the static pods of a kubelet on the same host and from those of apply.
const FolderAnnotation = "crishim.io/sync.folder"
