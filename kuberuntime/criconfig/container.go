package criconfig

import (
	"encoding/json"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// ContainerInput is all that a container's configuration depends on beside its manifest.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	Set       *manifest.Set // ConfigMaps and Secrets for variables
	Restarts  int
	ImageRef  string // what the runtime knows the image by
	ImageUser ImageUser
	PodIPs    []string
	Mounts    []*runtimeapi.Mount
	TargetID  string // container whose processes an ephemeral container sees
}

// Container is the configuration of one attempt of a container.
func (g *Generator) Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	p, c := in.Pod, in.Container
	if err := VerifyNonRoot(p, c, in.ImageUser); err != nil {
		return nil, err
	}
	env, err := Env(p, c, in.Set, g.Host, in.PodIPs)
	if err != nil {
		return nil, err
	}
	annotations, err := containerAnnotations(p, c, in.Restarts)
	if err != nil {
		return nil, err
	}
	own := labels(p)
	own[kube.LabelContainerName] = c.Name
	expandAll := func(args []string) (out []string) {
		for _, a := range args {
			out = append(out, Expand(a, env))
		}
		return out
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.Restarts)},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command),
		Args:        expandAll(c.Args),
		WorkingDir:  c.WorkingDir,
		Envs:        env,
		Mounts:      in.Mounts,
		Labels:      own,
		Annotations: annotations,
		LogPath:     LogPath(c.Name, in.Restarts),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(p, c, g.Host),
			SecurityContext: g.containerSecurity(p, c, in.ImageUser, in.TargetID),
		},
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		config.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+string(*c.Lifecycle.StopSignal)])
	}
	return config, nil
}

// LogPath is a container's log below the pod's log folder.
func LogPath(name string, restarts int) string { return fmt.Sprintf("%s/%d.log", name, restarts) }

// containerAnnotations hold what is needed to end a container properly when its manifest
// is no longer there.
func containerAnnotations(p *v1.Pod, c *v1.Container, restarts int) (map[string]string, error) {
	out := map[string]string{
		pod.HashAnnotation:          pod.FormatHash(pod.ContainerHash(c)),
		pod.RestartCountAnnotation:  strconv.Itoa(restarts),
		pod.MessagePathAnnotation:   c.TerminationMessagePath,
		pod.MessagePolicyAnnotation: string(c.TerminationMessagePolicy),
	}
	if p.DeletionGracePeriodSeconds != nil {
		out[pod.DeletionGraceAnnotation] = strconv.FormatInt(*p.DeletionGracePeriodSeconds, 10)
	}
	if p.Spec.TerminationGracePeriodSeconds != nil {
		out[pod.TerminationGraceAnnotation] = strconv.FormatInt(*p.Spec.TerminationGracePeriodSeconds, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		text, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("encode preStop of %s: %w", c.Name, err)
		}
		out[pod.PreStopAnnotation] = string(text)
	}
	if len(c.Ports) > 0 {
		text, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("encode ports of %s: %w", c.Name, err)
		}
		out[pod.PortsAnnotation] = string(text)
	}
	return out, nil
}
