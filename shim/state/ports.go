package state

import (
	"encoding/json"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
