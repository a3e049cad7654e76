package state

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

// Sandbox is what labels say about a pod sandbox.
type Sandbox struct {
	Metadata       *runtimeapi.PodSandboxMetadata
	Labels         map[string]string
	Annotations    map[string]string
	RuntimeHandler string
	Created        time.Time // zero where another shim made the sandbox
	Ports          []*runtimeapi.PortMapping
	Network        string // name of the network plugin that set it up; "" where unknown
	PID            runtimeapi.NamespaceMode
}

// Container is what labels say about a container.
type Container struct {
	Metadata    *runtimeapi.ContainerMetadata
	Pod         *runtimeapi.PodSandboxMetadata
	SandboxID   string
	LogPath     string
	LogDir      string // the pod's log directory; "" where another shim made the container
	Image       string // the image as the config named it; "" where another shim made the container
	Labels      map[string]string
	Annotations map[string]string
	Created     time.Time // zero where another shim made the container
}

// SandboxName returns the engine name of a sandbox.
func SandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return encodeName(nameParts{sandboxMarker, m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt()})
}

// ContainerName returns the engine name of a container in a pod.
func ContainerName(pod *runtimeapi.PodSandboxMetadata, m *runtimeapi.ContainerMetadata) string {
	return encodeName(nameParts{m.GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(), m.GetAttempt()})
}

// EncodeSandbox returns the engine labels of a sandbox.
func EncodeSandbox(s Sandbox) (map[string]string, error) {
	ports, err := encodePorts(s.Ports)
	if err != nil {
		return nil, err
	}
	own := map[string]string{
		LabelType:               TypeSandbox,
		kube.LabelContainerName: sandboxMarker,
		LabelOwnName:            s.Metadata.GetName(),
		LabelOwnNamespace:       s.Metadata.GetNamespace(),
		LabelOwnUID:             s.Metadata.GetUid(),
		LabelOwnAttempt:         encodeAttempt(s.Metadata.GetAttempt()),
		LabelOwnCreated:         s.Created.UTC().Format(time.RFC3339Nano),
		LabelOwnHandler:         s.RuntimeHandler,
		LabelOwnNetwork:         s.Network,
		LabelOwnPorts:           ports,
		LabelOwnPID:             s.PID.String(),
	}
	return withLabels(EncodeLabels(s.Labels, s.Annotations), own), nil
}

// DecodeSandbox reads a sandbox back from its engine name and labels. It says
// false for containers that no shim made as a sandbox.
func DecodeSandbox(name string, labels map[string]string) (Sandbox, bool) {
	if labels[LabelType] != TypeSandbox {
		return Sandbox{}, false
	}
	parts, _ := decodeName(name)
	s := Sandbox{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      first(labels, parts.pod, LabelOwnName, kube.LabelPodName),
			Namespace: first(labels, parts.namespace, LabelOwnNamespace, kube.LabelPodNamespace),
			Uid:       first(labels, parts.uid, LabelOwnUID, kube.LabelPodUID),
			Attempt:   decodeAttempt(labels[LabelOwnAttempt], parts.attempt),
		},
		RuntimeHandler: labels[LabelOwnHandler],
		Created:        decodeTime(labels[LabelOwnCreated]),
		Ports:          decodePorts(labels[LabelOwnPorts]),
		Network:        labels[LabelOwnNetwork],
		PID:            decodePID(labels),
	}
	s.Labels, s.Annotations = DecodeLabels(labels)
	return s, true
}

// EncodeContainer returns the engine labels of a container.
func EncodeContainer(c Container) map[string]string {
	own := map[string]string{
		LabelType:         TypeContainer,
		LabelSandboxID:    c.SandboxID,
		LabelLogPath:      c.LogPath,
		LabelOwnName:      c.Metadata.GetName(),
		LabelOwnPod:       c.Pod.GetName(),
		LabelOwnNamespace: c.Pod.GetNamespace(),
		LabelOwnUID:       c.Pod.GetUid(),
		LabelOwnAttempt:   encodeAttempt(c.Metadata.GetAttempt()),
		LabelOwnCreated:   c.Created.UTC().Format(time.RFC3339Nano),
		LabelOwnImage:     c.Image,
		LabelOwnLogDir:    c.LogDir,
	}
	return withLabels(EncodeLabels(c.Labels, c.Annotations), own)
}

// DecodeContainer reads a container back from its engine name and labels. It
// says false for containers that no shim made as a pod's container.
func DecodeContainer(name string, labels map[string]string) (Container, bool) {
	if labels[LabelType] != TypeContainer {
		return Container{}, false
	}
	parts, _ := decodeName(name)
	c := Container{
		Metadata: &runtimeapi.ContainerMetadata{
			Name:    first(labels, parts.container, LabelOwnName, kube.LabelContainerName),
			Attempt: decodeAttempt(labels[LabelOwnAttempt], parts.attempt),
		},
		Pod: &runtimeapi.PodSandboxMetadata{
			Name:      first(labels, parts.pod, LabelOwnPod, kube.LabelPodName),
			Namespace: first(labels, parts.namespace, LabelOwnNamespace, kube.LabelPodNamespace),
			Uid:       first(labels, parts.uid, LabelOwnUID, kube.LabelPodUID),
		},
		SandboxID: labels[LabelSandboxID],
		LogPath:   labels[LabelLogPath],
		LogDir:    labels[LabelOwnLogDir],
		Image:     labels[LabelOwnImage],
		Created:   decodeTime(labels[LabelOwnCreated]),
	}
	c.Labels, c.Annotations = DecodeLabels(labels)
	return c, true
}

// first takes crishim's own label, then the name's part, then the label that a
// kubelet sets.
func first(labels map[string]string, part, own, kubelet string) string {
	if v, ok := labels[own]; ok {
		return v
	}
	if part != "" {
		return part
	}
	return labels[kubelet]
}

func encodeAttempt(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func decodeAttempt(label string, otherwise uint32) uint32 {
	n, err := strconv.ParseUint(label, 10, 32)
	if err != nil {
		return otherwise
	}
	return uint32(n)
}

// decodePID reads how a pod's containers share processes. The other shims note it
// nowhere, and call each one's own.
func decodePID(labels map[string]string) runtimeapi.NamespaceMode {
	label, ok := labels[LabelOwnPID]
	if !ok {
		return runtimeapi.NamespaceMode_CONTAINER
	}
	return runtimeapi.NamespaceMode(runtimeapi.NamespaceMode_value[label])
}

func decodeTime(label string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, label)
	if err != nil {
		return time.Time{}
	}
	return t
}

const (
	namePrefix = "k8s"
	nameSep    = "_"
)

var nameForbidden = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// nameParts is what the name of a container of the shim family carries.
type nameParts struct {
	container, pod, namespace, uid string
	attempt                        uint32
}

// encodeName makes the engine name that dockershim and cri-dockerd would make.
// Characters that the engine refuses become dashes: labels hold the truth.
func encodeName(p nameParts) string {
	parts := []string{namePrefix, p.container, p.pod, p.namespace, p.uid, strconv.FormatUint(uint64(p.attempt), 10)}
	return nameForbidden.ReplaceAllString(strings.Join(parts, nameSep), "-")
}

// AlternativeName returns the name to use where the plain one is taken. The
// suffix is a seventh part, which dockershim and cri-dockerd understand.
func AlternativeName(name string, suffix uint32) string {
	return fmt.Sprintf("%s%s%08x", name, nameSep, suffix)
}

// decodeName reads a name made by encodeName, dockershim or cri-dockerd.
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

// port is one port mapping in a label, in the form of dockershim's checkpoint.
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

// decodePorts reads the label leniently: a pod whose label is damaged must
// still be listed, stopped and removed.
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
