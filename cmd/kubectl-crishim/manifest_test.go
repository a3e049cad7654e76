package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
)

// A pod has only the mounts that its verb needs. For read-only verbs all mounts of the host are read-only.
func TestPodForAVerb(t *testing.T) {
	t.Parallel()
	containerd := nodeWith("containerd://1.7.2", "v1.30.0", nil)
	for name, c := range map[string]struct {
		rights     string
		files      bool
		keep       bool
		mounts     []string // host mounts; writable ones end with " rw"
		privileged bool
	}{
		"reads":                 {kube.RightsRead, false, false, []string{"/run/containerd/containerd.sock"}, false},
		"reads logs":            {kube.RightsRead, true, false, []string{"/run/containerd/containerd.sock", "/var/log/pods"}, false},
		"reads, and is kept":    {kube.RightsRead, false, true, []string{"/run/containerd/containerd.sock", "/var/log/pods"}, false},
		"changes the runtime":   {kube.RightsChange, false, false, []string{"/run/containerd/containerd.sock"}, false},
		"makes log directories": {kube.RightsChange, true, false, []string{"/run/containerd/containerd.sock", "/var/log/pods rw"}, false},
		"makes volumes":         {kube.RightsHost, true, false, []string{"/run/containerd/containerd.sock", "/var/log/pods rw", "/var/lib/crishim rw"}, true},
	} {
		line := cli.NodeLine{OnNode: cli.OnNode{Rights: c.rights, Logs: c.files}}
		pod := podFor(containerd, line, "image", c.keep)
		container := pod.Spec.Containers[0]
		var mounts []string
		for i, v := range pod.Spec.Volumes {
			mount := container.VolumeMounts[i]
			if v.HostPath == nil {
				if v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit.String() != "64Mi" {
					t.Errorf("%s: volume %s is %v", name, v.Name, v.EmptyDir)
				}
				continue
			}
			path := mount.MountPath
			if !mount.ReadOnly {
				path += " rw"
			}
			mounts = append(mounts, path)
		}
		if diff := cmp.Diff(c.mounts, mounts); diff != "" {
			t.Errorf("%s: mounts (-want +got):\n%s", name, diff)
		}
		if r := container.Resources; r.Limits.Memory().String() != "256Mi" || r.Requests.Memory().String() != "16Mi" || r.Requests.Cpu().String() != "1m" {
			t.Errorf("%s: resources are %v", name, r)
		}
		s := container.SecurityContext
		if *s.Privileged != c.privileged || !*s.ReadOnlyRootFilesystem || !c.privileged && len(s.Capabilities.Drop) != 1 || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("%s: got %v", name, s)
		}
		if !pod.Spec.HostNetwork || !pod.Spec.HostPID || pod.Spec.NodeName != "worker" || pod.Spec.Tolerations[0].Operator != corev1.TolerationOpExists || *pod.Spec.ActiveDeadlineSeconds <= 0 {
			t.Errorf("%s: got %v", name, pod.Spec)
		}
	}
}

func nodeWith(runtime, kubelet string, annotations map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker", Annotations: annotations},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{ContainerRuntimeVersion: runtime, KubeletVersion: kubelet}},
	}
}

func TestSocketOfANode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		named, annotation, runtime, kubelet string
		want                                string
	}{
		{"", "", "containerd://1.7.2", "v1.30.0", "/run/containerd/containerd.sock"},
		{"", "", "containerd://1.7.2-k3s2", "v1.30.0+k3s1", "/run/k3s/containerd/containerd.sock"},
		{"", "", "containerd://1.7.2", "v1.30.0+rke2r1", "/run/k3s/containerd/containerd.sock"},
		{"", "", "containerd://1.7.2", "v1.30.0+k0s", "/run/k0s/containerd.sock"},
		{"", "", "cri-o://1.30.0", "v1.30.0", "/run/crio/crio.sock"},
		{"", "", "docker://20.10.1", "v1.23.17", "/var/run/docker.sock"},
		{"", "", "docker://27.0.1", "v1.30.0", "/var/run/cri-dockerd.sock"},
		{"", "unix:///run/own.sock", "containerd://1.7.2", "v1.30.0", "/run/own.sock"},
		{"", "/run/own.sock", "containerd://1.7.2", "v1.30.0", "/run/own.sock"},
		{"unix:///run/named.sock", "unix:///run/own.sock", "containerd://1.7.2", "v1.30.0", "/run/named.sock"},
		{"tcp://host:1", "", "", "", "/run/containerd/containerd.sock"},
	} {
		annotations := map[string]string{}
		if c.annotation != "" {
			annotations[kubeadmSocket] = c.annotation
		}
		if got := socketOf(nodeWith(c.runtime, c.kubelet, annotations), c.named); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func TestWhyAPodIsPending(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) *corev1.Pod {
		return &corev1.Pod{
			Spec: corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Image: "x:1"}}},
			Status: corev1.PodStatus{StartTime: &metav1.Time{}, Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}},
			}},
		}
	}
	creating := waiting("ContainerCreating", "")
	events := []corev1.Event{{Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "no socket"}, {Type: corev1.EventTypeNormal, Reason: "Pulling", Message: "image"}}
	for want, got := range map[string]string{
		"FailedMount: no socket":                          pendingReason(creating, events),
		"Pulling: image":                                  pendingReason(creating, events[1:]),
		"ContainerCreating":                               pendingReason(creating, nil),
		"ErrImagePull: denied":                            pendingReason(waiting("ErrImagePull", "denied"), nil),
		"Unschedulable: no node":                          pendingReason(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node"}}}}, nil),
		"the kubelet has not begun with it":               pendingReason(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "worker"}}, nil),
		"cannot pull the image x:1: ErrImagePull: denied": stuck(waiting("ErrImagePull", "denied")),
		"CreateContainerError: no such mount":             stuck(waiting("CreateContainerError", "no such mount")),
		"":                                                stuck(creating),
		"DeadlineExceeded":                                over(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"}}),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
