package shim

import (
	"encoding/json"
	"slices"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// recursiveAPI is the Engine API from which on read-only mounts can be made
// recursive.
const recursiveAPI = "1.44"

// features are what the shim does on every engine.
func features() *runtimeapi.RuntimeFeatures {
	return &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
}

// handlers lists the engine's OCI runtimes. The empty name is the default.
func handlers(info system.Info, api string) []*runtimeapi.RuntimeHandler {
	if len(info.Runtimes) == 0 {
		return nil
	}
	names := []string{""}
	for name := range info.Runtimes {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]*runtimeapi.RuntimeHandler, 0, len(names))
	for _, name := range names {
		engineName := name
		if name == "" {
			engineName = info.DefaultRuntime
		}
		out = append(out, &runtimeapi.RuntimeHandler{Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: !versions.LessThan(api, recursiveAPI) && recursiveReadOnly(info.Runtimes[engineName].Status),
		}})
	}
	return out
}

// recursiveReadOnly looks into what the engine passes on of the OCI runtime's
// own account of itself.
func recursiveReadOnly(status map[string]string) bool {
	var own struct {
		MountOptions []string `json:"mountOptions"`
	}
	text := status["org.opencontainers.runtime-spec.features"]
	return text != "" && json.Unmarshal([]byte(text), &own) == nil && slices.Contains(own.MountOptions, "rro")
}
