package bundle

import (
	"encoding/json"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// The types of this file are the list of what a bundle tells about a runtime. A field of a CRI message that is not
// copied here is not in a bundle. TestOnlyTheListIsTold compares them with the messages.

// Keep selects the parts that a bundle has in addition, on request.
type Keep struct{ Args, Env bool }

// Pod is a sandbox.
type Pod struct {
	ID, Name, Namespace, UID, State string
	Attempt                         uint32
	Created                         Time
	RuntimeHandler                  string            `json:",omitempty"`
	IPs                             []string          `json:",omitempty"`
	Ports                           []string          `json:",omitempty"`
	Labels, Annotations             map[string]string `json:",omitempty"`
}

// Container is an attempt of a container.
type Container struct {
	ID, Name, Namespace, Pod, PodID string
	Attempt                         uint32
	Image, ImageRef, ImageID        string
	State                           string
	Reason, Message                 string `json:",omitempty"` // the runtime's own words
	ExitCode                        int32
	Created, Started, Finished      Time
	LogPath                         string                    `json:",omitempty"`
	Command                         string                    `json:",omitempty"` // its first word
	MoreArguments                   int                       // how many follow
	Arguments                       []string                  `json:",omitempty"` // with --keep-args
	Environment                     []string                  `json:",omitempty"` // names; with --keep-env NAME=value
	Mounts                          []Mount                   `json:",omitempty"`
	Resources                       *Resources                `json:",omitempty"`
	Labels, Annotations             map[string]string         `json:",omitempty"`
	CPUNanoCores, MemoryBytes       uint64                    `json:",omitempty"`
	state                           runtimeapi.ContainerState // for isUnhealthy
	engineLog                       string
}

// Mount is a mount of a container.
type Mount struct {
	Host, Container, Propagation string
	ReadOnly                     bool
}

// Resources are the limits of a container.
type Resources struct{ CPUPeriod, CPUQuota, CPUShares, Memory, Swap, OOMScore int64 }

// Image is an image of the runtime.
type Image struct {
	ID            string
	Tags, Digests []string `json:",omitempty"`
	Bytes         uint64
	Pinned        bool
}

// Condition is what the runtime says about itself.
type Condition struct {
	Type            string
	Status          bool
	Reason, Message string `json:",omitempty"`
}

// Time is a time, "" where it is not known.
type Time string

func nanoTime(n int64) Time {
	if n <= 0 {
		return ""
	}
	return Time(time.Unix(0, n).UTC().Format(time.RFC3339))
}

// ownKeys are labels and annotations whose values the kubelet and crishim make themselves.
var ownKeys = map[string]bool{
	"io.kubernetes.pod.name": true, "io.kubernetes.pod.namespace": true, "io.kubernetes.pod.uid": true, "io.kubernetes.container.name": true,
	"io.kubernetes.container.hash": true, "io.kubernetes.container.restartCount": true, "io.kubernetes.container.terminationMessagePath": true,
	"io.kubernetes.container.terminationMessagePolicy": true, "io.kubernetes.pod.terminationGracePeriod": true, "io.crishim.owner": true,
	"io.crishim.temporary": true, "io.crishim.paused": true,
}

// keys returns the keys, with the values of ownKeys.
func keys(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		out[key] = ""
		if ownKeys[key] {
			out[key] = value
		}
	}
	return out
}

func newPod(p *runtimeapi.PodSandbox, r *runtimeapi.PodSandboxStatusResponse) Pod {
	m := p.GetMetadata()
	out := Pod{
		ID: p.GetId(), Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUid(), State: word(p.GetState(), "SANDBOX_"), Attempt: m.GetAttempt(),
		Created: nanoTime(p.GetCreatedAt()), RuntimeHandler: p.GetRuntimeHandler(), Labels: keys(p.GetLabels()), Annotations: keys(p.GetAnnotations()),
	}
	if network := r.GetStatus().GetNetwork(); network.GetIp() != "" {
		out.IPs = append(out.IPs, network.GetIp())
		for _, ip := range network.GetAdditionalIps() {
			out.IPs = append(out.IPs, ip.GetIp())
		}
	}
	for _, p := range output.SandboxPorts(r) {
		out.Ports = append(out.Ports, p.String())
	}
	return out
}

func newContainer(c *runtimeapi.Container, r *runtimeapi.ContainerStatusResponse, pod *runtimeapi.PodSandboxMetadata, use *runtimeapi.ContainerStats, keep Keep) Container {
	s := r.GetStatus()
	out := Container{
		ID: c.GetId(), Name: c.GetMetadata().GetName(), Namespace: pod.GetNamespace(), Pod: pod.GetName(), PodID: c.GetPodSandboxId(), Attempt: c.GetMetadata().GetAttempt(),
		Image: c.GetImage().GetImage(), ImageRef: c.GetImageRef(), ImageID: c.GetImageId(), State: word(c.GetState(), "CONTAINER_"), state: c.GetState(),
		Reason: s.GetReason(), Message: s.GetMessage(), ExitCode: s.GetExitCode(), Created: nanoTime(c.GetCreatedAt()), Started: nanoTime(s.GetStartedAt()),
		Finished: nanoTime(s.GetFinishedAt()), LogPath: s.GetLogPath(), Labels: keys(c.GetLabels()), Annotations: keys(c.GetAnnotations()),
		CPUNanoCores: use.GetCpu().GetUsageNanoCores().GetValue(), MemoryBytes: use.GetMemory().GetWorkingSetBytes().GetValue(),
	}
	for _, m := range s.GetMounts() {
		out.Mounts = append(out.Mounts, Mount{m.GetHostPath(), m.GetContainerPath(), word(m.GetPropagation(), "PROPAGATION_"), m.GetReadonly()})
	}
	if l := s.GetResources().GetLinux(); l != nil {
		out.Resources = &Resources{l.GetCpuPeriod(), l.GetCpuQuota(), l.GetCpuShares(), l.GetMemoryLimitInBytes(), l.GetMemorySwapLimitInBytes(), l.GetOomScoreAdj()}
	}
	var details struct {
		LogPath     string `json:"logPath"`
		RuntimeSpec struct {
			Process struct{ Args, Env []string } `json:"process"`
		} `json:"runtimeSpec"`
	}
	if json.Unmarshal([]byte(r.GetInfo()["info"]), &details) != nil {
		return out // a runtime whose verbose status has another form
	}
	out.engineLog = details.LogPath
	process := details.RuntimeSpec.Process
	if len(process.Args) > 0 {
		out.Command, out.MoreArguments = process.Args[0], len(process.Args)-1
		if first, _, shell := strings.Cut(out.Command, " "); shell { // a whole command line in one word
			out.Command = first
		}
	}
	if keep.Args {
		out.Arguments = process.Args
	}
	for _, variable := range process.Env {
		if name, _, _ := strings.Cut(variable, "="); !keep.Env {
			variable = name
		}
		out.Environment = append(out.Environment, variable)
	}
	return out
}

// isUnhealthy reports whether a container did not end well, was restarted, or does not start.
func (c *Container) isUnhealthy() bool {
	switch c.state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED:
		return c.ExitCode != 0 || c.Attempt > 0
	}
	return true
}

func newImage(i *runtimeapi.Image) Image {
	return Image{i.GetId(), i.GetRepoTags(), i.GetRepoDigests(), i.GetSize(), i.GetPinned()}
}

func newConditions(s *runtimeapi.RuntimeStatus) (out []Condition) {
	for _, c := range s.GetConditions() {
		out = append(out, Condition{c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage()})
	}
	return out
}

// word is the word of a CRI constant.
func word(value interface{ String() string }, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}
