package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
)

func defaultImage(version string) string { return "ghcr.io/crishim/crishim:" + version }

// A pod that is never removed ends spareTime after the deadline of its command line. Without a deadline, and with
// --keep, it ends after longestLife.
const (
	spareTime   = 2 * time.Minute
	longestLife = 12 * time.Hour
)

const (
	labelOwner        = "io.crishim.owner"   // creator of the pod: a user on a machine
	labelKept         = "io.crishim.kept"    // created with --keep
	annotationProcess = "io.crishim.process" // process that removes the pod
	annotationSocket  = "io.crishim.socket"  // socket that is mounted
	annotationVerb    = "io.crishim.command" // the verb, for people who look at the pod
)

const volumeRuntime = "runtime" // volume with the socket of the node's runtime

// podFor returns a pod for a command line on a node. It uses the host's network, because the streaming server listens
// on loopback there, and the host's PID namespace, because verbs show pids. It is privileged only for a command line
// that needs kube.RightsHost, but access to the runtime's socket is equivalent to root on the node: grant the right to
// create such pods with care.
func podFor(node *corev1.Node, line cli.NodeLine, image string, keep bool) *corev1.Pod {
	life := longestLife
	if line.Deadline > 0 && !keep {
		life = line.Deadline + spareTime
	}
	socket := socketOf(node, line.Socket)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{
				kube.LabelApp: kube.LabelAppValue, kube.LabelManagedBy: kube.ManagedByKubectl, kube.LabelRights: line.Rights,
			},
			Annotations: map[string]string{annotationSocket: socket, annotationVerb: line.Verb},
		},
		Spec: corev1.PodSpec{
			NodeName: node.Name, HostNetwork: true, HostPID: true,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         ptr.To(int64(life.Seconds())),
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			DNSPolicy:                     corev1.DNSDefault,
			Containers: []corev1.Container{{
				Name: kube.ClusterContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{kube.ClusterProgram, kube.IdleWord},
				Env: []corev1.EnvVar{
					{Name: "CONTAINER_RUNTIME_ENDPOINT", Value: endpointAt(socket)}, // skips discovery
				},
				Resources: corev1.ResourceRequirements{ // as in packaging/kubernetes/base
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: ptr.To(int64(0)), RunAsNonRoot: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Privileged: ptr.To(false), AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}, // other types cannot connect to the runtime
				},
			}},
		},
	}
	own := func(name, path string) {
		addVolume(pod, name, path, corev1.VolumeMount{}, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(64<<20, resource.BinarySI),
		}})
	}
	host := func(name, path string, kind corev1.HostPathType, mount corev1.VolumeMount) {
		addVolume(pod, name, path, mount, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}})
	}
	reading := corev1.VolumeMount{ReadOnly: true}
	own("tmp", "/tmp")
	own("run", "/run/crishim") // emptyDir for the runtime files of the embedded dockershim
	host(volumeRuntime, socket, corev1.HostPathSocket, reading)
	switch {
	case line.Rights == kube.RightsRead && (line.Logs || keep):
		host("logs", "/var/log/pods", corev1.HostPathDirectory, reading)
	case line.Rights != kube.RightsRead && (line.Logs || keep):
		host("logs", "/var/log/pods", corev1.HostPathDirectoryOrCreate, corev1.VolumeMount{})
	}
	if line.Rights == kube.RightsHost { // the directory with the volumes of pods from apply and sync
		host("state", "/var/lib/crishim", corev1.HostPathDirectoryOrCreate, corev1.VolumeMount{MountPropagation: ptr.To(corev1.MountPropagationBidirectional)})
		security := pod.Spec.Containers[0].SecurityContext
		security.Privileged, security.AllowPrivilegeEscalation, security.Capabilities, security.SeccompProfile = ptr.To(true), nil, nil, nil
	}
	return pod
}

func endpointAt(socket string) string {
	if socket == client.DockerSocket {
		return "docker://" + socket
	}
	return "unix://" + socket
}

func addVolume(pod *corev1.Pod, name, path string, mount corev1.VolumeMount, source corev1.VolumeSource) {
	mount.Name, mount.MountPath = name, path
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, mount)
}

// kubeadmSocket is the annotation in which kubeadm records a node's socket.
const kubeadmSocket = "kubeadm.alpha.kubernetes.io/cri-socket"

// socketOf returns the socket to mount: the socket in the command line or in kubeadm's annotation, else the usual socket
// of the node's runtime. An endpoint without the path of a socket, such as docker://, is ignored.
func socketOf(node *corev1.Node, named string) string {
	for _, endpoint := range []string{named, node.Annotations[kubeadmSocket]} {
		if endpoint == "" {
			continue
		}
		if parsed, err := client.ParseEndpoint(endpoint); err == nil && parsed.Network == "unix" && parsed.Address != "" {
			return parsed.Address
		}
	}
	info := node.Status.NodeInfo
	runtime, _, _ := strings.Cut(info.ContainerRuntimeVersion, "://")
	_, distribution, _ := strings.Cut(info.KubeletVersion, "+")
	switch kubelet, err := utilversion.ParseGeneric(info.KubeletVersion); {
	case strings.HasPrefix(distribution, "k3s"), strings.HasPrefix(distribution, "rke2"):
		return client.KnownSocket("k3s or rke2")
	case strings.HasPrefix(distribution, "k0s"):
		return client.KnownSocket("k0s")
	case node.Labels["microk8s.io/cluster"] == "true":
		return client.KnownSocket("microk8s")
	case runtime == "cri-o":
		return client.KnownSocket("CRI-O")
	case runtime == "docker" && err == nil && kubelet.LessThan(utilversion.MajorMinor(1, 24)):
		return client.DockerSocket // socket of a kubelet with dockershim
	case runtime == "docker":
		return client.KnownSocket("cri-dockerd")
	}
	return client.KnownSocket("containerd")
}

// pendingReason finds in events, conditions and containers why a pod does not run.
func pendingReason(pod *corev1.Pod, events []corev1.Event) string {
	for i := len(events) - 1; i >= 0; i-- {
		if e := events[i]; e.Type == corev1.EventTypeWarning {
			return e.Reason + ": " + e.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Message != "" {
			return w.Reason + ": " + w.Message
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Type == corev1.PodScheduled {
			return c.Reason + ": " + c.Message
		}
	}
	if len(events) > 0 {
		last := events[len(events)-1]
		return last.Reason + ": " + last.Message
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return w.Reason
		}
	}
	if pod.Status.StartTime == nil && pod.Spec.NodeName != "" {
		return "the kubelet has not begun with it"
	}
	return cmp.Or(pod.Status.Reason, string(pod.Status.Phase))
}

// stuck returns the reason why a pod will never run, or "".
func stuck(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch w := c.State.Waiting; {
		case w == nil:
		case strings.Contains(w.Reason, "Pull") || strings.Contains(w.Reason, "Image"): // ErrImagePull, ImagePullBackOff, InvalidImageName
			return "cannot pull the image " + pod.Spec.Containers[0].Image + ": " + w.Reason + ": " + w.Message
		case strings.HasSuffix(w.Reason, "Error") || w.Reason == "CrashLoopBackOff":
			return w.Reason + ": " + w.Message
		}
		if t := c.State.Terminated; t != nil {
			return "the container has ended: " + t.Reason + ": " + cmp.Or(t.Message, fmt.Sprint("exit status ", t.ExitCode))
		}
	}
	return over(pod)
}

// over returns the reason why a pod has ended or is ending, or "".
func over(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return "it is being removed"
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return cmp.Or(strings.Trim(pod.Status.Reason+": "+pod.Status.Message, ": "), "it has ended")
	}
	return ""
}
