package client

import (
	"strings"
	"unicode"
)

// operations are calls whose method name does not read as what a user did.
var operations = map[string]string{
	"Version":                  "ask for the version",
	"Status":                   "ask for the runtime's status",
	"RuntimeConfig":            "ask for the runtime's configuration",
	"ListPodSandbox":           "list pods",
	"PodSandboxStatus":         "inspect the pod",
	"RunPodSandbox":            "run the pod",
	"StopPodSandbox":           "stop the pod",
	"RemovePodSandbox":         "remove the pod",
	"ContainerStatus":          "inspect the container",
	"ContainerStats":           "read the container's stats",
	"PodSandboxStats":          "read the pod's stats",
	"ListPodSandboxStats":      "list pod stats",
	"ListPodSandboxMetrics":    "list pod metrics",
	"ImageStatus":              "inspect the image",
	"ImageFsInfo":              "ask for the image filesystem",
	"Exec":                     "exec",
	"ExecSync":                 "exec",
	"PortForward":              "port-forward",
	"GetContainerEvents":       "watch events",
	"UpdateContainerResources": "update the container",
}

// operation is a call in words: "/runtime.v1.RuntimeService/ListContainers"
// is "list containers".
func operation(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	if s, ok := operations[name]; ok {
		return s
	}
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
