package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/lazyregexp"
)

type Sandbox struct {
	Metadata       *runtimeapi.PodSandboxMetadata
	Labels         map[string]string
	Annotations    map[string]string
	RuntimeHandler string
	Created        time.Time // zero if another shim created the sandbox
	Ports          []*runtimeapi.PortMapping
	Network        string // name of the network plugin that connected it; "" if unknown
	PID            runtimeapi.NamespaceMode
}

type Container struct {
	Metadata    *runtimeapi.ContainerMetadata
	Pod         *runtimeapi.PodSandboxMetadata
	SandboxID   string
	LogPath     string
	LogDir      string // the pod's log directory, if any; "" also if another shim created the container
	Image       string // image reference in the config; "" if another shim created the container
	Labels      map[string]string
	Annotations map[string]string
	Created     time.Time // zero if another shim created the container
	ImageMounts []ImageMount
	Limits      string // value of LabelOwnLimits
	Owner       string // value of LabelOwner
}

func SandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return encodeName(nameParts{sandboxMarker, m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt()})
}

func ContainerName(pod *runtimeapi.PodSandboxMetadata, m *runtimeapi.ContainerMetadata) string {
	return encodeName(nameParts{m.GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(), m.GetAttempt()})
}

// EncodeSandbox returns the labels of a sandbox. dockershim's CheckpointManager kept this data in files.
func EncodeSandbox(s Sandbox, image map[string]string) (map[string]string, error) {
	ports, err := encodePorts(s.Ports)
	if err != nil {
		return nil, err
	}
	labels := encodeLabels(s.Labels, s.Annotations)
	maps.Copy(labels, map[string]string{
		LabelType:               TypeSandbox,
		kube.LabelContainerName: sandboxMarker,
		LabelOwnName:            s.Metadata.GetName(),
		labelOwnNamespace:       s.Metadata.GetNamespace(),
		labelOwnUID:             s.Metadata.GetUid(),
		labelOwnAttempt:         fmt.Sprint(s.Metadata.GetAttempt()),
		labelOwnCreated:         s.Created.UTC().Format(time.RFC3339Nano),
		labelOwnHandler:         s.RuntimeHandler,
		labelOwnNetwork:         s.Network,
		labelOwnPorts:           ports,
		labelOwnPID:             s.PID.String(),
	})
	labels[labelOwnImageLabels] = encodeImageLabels(labels, image)
	return labels, nil
}

// DecodeSandbox returns false if the container is not a sandbox of a shim. It checks the name too, because labels may
// come from an image.
func DecodeSandbox(name string, labels map[string]string) (Sandbox, bool) {
	if labels[LabelType] != TypeSandbox || !strings.HasPrefix(strings.TrimPrefix(name, "/"), namePrefix+nameSep+sandboxMarker+nameSep) {
		return Sandbox{}, false
	}
	labels = withoutImageLabels(labels)
	parts, _ := decodeName(name)
	s := Sandbox{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      first(labels, parts.pod, LabelOwnName, kube.LabelPodName),
			Namespace: first(labels, parts.namespace, labelOwnNamespace, kube.LabelPodNamespace),
			Uid:       first(labels, parts.uid, labelOwnUID, kube.LabelPodUID),
			Attempt:   decodeAttempt(labels, parts.attempt),
		},
		RuntimeHandler: labels[labelOwnHandler],
		Created:        decodeTime(labels[labelOwnCreated]),
		Ports:          decodePorts(labels[labelOwnPorts]),
		Network:        labels[labelOwnNetwork],
	}
	if pid, ok := labels[labelOwnPID]; ok {
		s.PID = runtimeapi.NamespaceMode(runtimeapi.NamespaceMode_value[pid])
	} else { // not recorded by other shims, whose containers have their own PID namespace
		s.PID = runtimeapi.NamespaceMode_CONTAINER
	}
	s.Labels, s.Annotations = decodeLabels(labels)
	return s, true
}

// EncodeContainer returns the labels of a container, including empty ones, so that the image cannot set them.
func EncodeContainer(c Container, image map[string]string) map[string]string {
	labels := encodeLabels(c.Labels, c.Annotations)
	maps.Copy(labels, map[string]string{
		LabelType:         TypeContainer,
		LabelSandboxID:    c.SandboxID,
		LabelLogPath:      c.LogPath,
		LabelOwnName:      c.Metadata.GetName(),
		labelOwnPod:       c.Pod.GetName(),
		labelOwnNamespace: c.Pod.GetNamespace(),
		labelOwnUID:       c.Pod.GetUid(),
		labelOwnAttempt:   fmt.Sprint(c.Metadata.GetAttempt()),
		labelOwnCreated:   c.Created.UTC().Format(time.RFC3339Nano),
		labelOwnImage:     c.Image,
		labelOwnLogDir:    c.LogDir,
		labelOwnSandbox:   c.SandboxID,
		LabelOwnMounts:    EncodeImageMounts(c.ImageMounts),
		LabelOwnLimits:    c.Limits,
		LabelOwner:        c.Owner,
	})
	labels[labelOwnImageLabels] = encodeImageLabels(labels, image)
	return labels
}

// DecodeContainer returns false if the container is not a pod container of a shim. It checks the name too, because
// labels may come from an image.
func DecodeContainer(name string, labels map[string]string) (Container, bool) {
	if labels[LabelType] != TypeContainer || !strings.HasPrefix(strings.TrimPrefix(name, "/"), namePrefix+nameSep) {
		return Container{}, false
	}
	if id := labels[LabelSandboxID]; id != "" && labels[labelOwnSandbox] == id {
		labels = withoutImageLabels(labels)
	} else {
		labels = maps.Clone(labels)
		maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, ownPrefix) })
	}
	parts, _ := decodeName(name)
	c := Container{
		Metadata: &runtimeapi.ContainerMetadata{
			Name:    first(labels, parts.container, LabelOwnName, kube.LabelContainerName),
			Attempt: decodeAttempt(labels, parts.attempt),
		},
		Pod: &runtimeapi.PodSandboxMetadata{
			Name:      first(labels, parts.pod, labelOwnPod, kube.LabelPodName),
			Namespace: first(labels, parts.namespace, labelOwnNamespace, kube.LabelPodNamespace),
			Uid:       first(labels, parts.uid, labelOwnUID, kube.LabelPodUID),
		},
		SandboxID: labels[LabelSandboxID],
		LogPath:   labels[LabelLogPath],
		LogDir:    labels[labelOwnLogDir],
		Image:     labels[labelOwnImage],
		Created:   decodeTime(labels[labelOwnCreated]),

		ImageMounts: decodeImageMounts(labels[LabelOwnMounts]),
		Limits:      labels[LabelOwnLimits],
		Owner:       labels[LabelOwner],
	}
	c.Labels, c.Annotations = decodeLabels(labels)
	return c, true
}

func first(labels map[string]string, part, own, kubelet string) string {
	if v, ok := labels[own]; ok {
		return v
	}
	if part != "" {
		return part
	}
	return labels[kubelet]
}

func decodeAttempt(labels map[string]string, part uint32) uint32 {
	n, err := strconv.ParseUint(labels[labelOwnAttempt], 10, 32)
	if err != nil {
		return part
	}
	return uint32(n)
}

func decodeTime(label string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, label) // zero on an error
	return t
}

const (
	namePrefix = "k8s"
	nameSep    = "_"
)

var nameForbidden = lazyregexp.New(`[^a-zA-Z0-9_.-]`)

type nameParts struct {
	container, pod, namespace, uid string
	attempt                        uint32
}

// encodeName returns the same name as dockershim and cri-dockerd. The labels are authoritative.
func encodeName(p nameParts) string {
	name := strings.Join([]string{namePrefix, p.container, p.pod, p.namespace, p.uid, fmt.Sprint(p.attempt)}, nameSep)
	return nameForbidden.ReplaceAllString(name, "-")
}

// AlternativeName returns a name for use while another container has the regular one. dockershim and cri-dockerd accept
// the suffix as a seventh part.
func AlternativeName(name string, suffix uint32) string {
	return fmt.Sprintf("%s%s%08x", name, nameSep, suffix)
}

func decodeName(name string) (nameParts, bool) {
	parts := strings.Split(strings.TrimPrefix(name, "/"), nameSep)
	if len(parts) != 6 && len(parts) != 7 || parts[0] != namePrefix {
		return nameParts{}, false
	}
	attempt, err := strconv.ParseUint(parts[5], 10, 32)
	if err != nil {
		return nameParts{}, false
	}
	return nameParts{container: parts[1], pod: parts[2], namespace: parts[3], uid: parts[4], attempt: uint32(attempt)}, true
}

// port is a port mapping in a label, in the format of dockershim's checkpoint.
type port struct {
	Protocol      string `json:"protocol"`
	ContainerPort int32  `json:"container_port"`
	HostPort      int32  `json:"host_port"`
	HostIP        string `json:"host_ip,omitempty"`
}

func encodePorts(mappings []*runtimeapi.PortMapping) (string, error) {
	if len(mappings) == 0 {
		return "", nil
	}
	ports := make([]port, 0, len(mappings))
	for _, m := range mappings {
		ports = append(ports, port{m.GetProtocol().String(), m.GetContainerPort(), m.GetHostPort(), m.GetHostIp()})
	}
	b, err := json.Marshal(ports)
	if err != nil {
		return "", fmt.Errorf("port mappings as a label: %w", err)
	}
	return string(b), nil
}

// decodePorts ignores a damaged label, because the pod must still be removable.
func decodePorts(label string) []*runtimeapi.PortMapping {
	var ports []port
	if label == "" || json.Unmarshal([]byte(label), &ports) != nil {
		return nil
	}
	mappings := make([]*runtimeapi.PortMapping, 0, len(ports))
	for _, p := range ports {
		mappings = append(mappings, &runtimeapi.PortMapping{
			Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[p.Protocol]),
			ContainerPort: p.ContainerPort,
			HostPort:      p.HostPort,
			HostIp:        p.HostIP,
		})
	}
	return mappings
}
