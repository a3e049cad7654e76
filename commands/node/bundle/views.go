package bundle

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// message has the fields of a CRI message that are in a list below, under their JSON names, and the fields that newPod
// and newContainer add.
type message map[string]any

// Fields of CRI messages in a bundle. Each path names a scalar field and never a whole message. A field that a later
// version of CRI adds to a message is therefore omitted. TestOnlyTheListIsTold compares a bundle with the lists.
const (
	podFields       = "id metadata.name metadata.namespace metadata.uid metadata.attempt state createdAt runtimeHandler"
	networkFields   = "network.ip network.additionalIps.ip"
	containerFields = "id podSandboxId metadata.name metadata.attempt image.image imageRef imageId state createdAt"
	statusFields    = `startedAt finishedAt exitCode reason message logPath mounts.containerPath mounts.hostPath mounts.readonly mounts.propagation
		resources.linux.cpuPeriod resources.linux.cpuQuota resources.linux.cpuShares resources.linux.memoryLimitInBytes
		resources.linux.memorySwapLimitInBytes resources.linux.oomScoreAdj`
	statsFields     = "cpu.usageNanoCores.value memory.workingSetBytes.value"
	imageFields     = "id repoTags repoDigests size pinned"
	conditionFields = "conditions.type conditions.status conditions.reason conditions.message"
)

// pick adds the fields of m that are in list. It keeps fields with the value 0, because the state SANDBOX_READY and the
// first attempt are 0.
func (out message) pick(m proto.Message, list string) {
	var all map[string]any
	if text, err := (protojson.MarshalOptions{EmitUnpopulated: true}).Marshal(m); err == nil && json.Unmarshal(text, &all) == nil {
		picked, _ := keep(all, "", strings.Fields(list)).(map[string]any)
		maps.Copy(out, picked)
	}
}

func keep(tree any, path string, list []string) any {
	switch tree := tree.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, value := range tree {
			if value := keep(value, strings.TrimPrefix(path+"."+name, "."), list); value != nil {
				kept[name] = value
			}
		}
		if len(kept) > 0 {
			return kept
		}
	case []any:
		var kept []any
		for _, value := range tree {
			if value := keep(value, path, list); value != nil {
				kept = append(kept, value)
			}
		}
		if kept != nil {
			return kept
		}
	default:
		if slices.Contains(list, path) {
			return tree
		}
	}
	return nil
}

// ownKeys are labels and annotations whose values the kubelet and crishim generate.
var ownKeys = strings.Fields(`io.kubernetes.pod.name io.kubernetes.pod.namespace io.kubernetes.pod.uid io.kubernetes.container.name
	io.kubernetes.container.hash io.kubernetes.container.restartCount io.kubernetes.container.terminationMessagePath
	io.kubernetes.container.terminationMessagePolicy io.kubernetes.pod.terminationGracePeriod io.crishim.owner io.crishim.temporary io.crishim.paused`)

// keys returns all labels or annotations. It clears the values of keys that are not in ownKeys.
func keys(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		out[key] = ""
		if slices.Contains(ownKeys, key) {
			out[key] = value
		}
	}
	return out
}

func newPod(p *runtimeapi.PodSandbox, r *runtimeapi.PodSandboxStatusResponse) message {
	out := message{"labels": keys(p.GetLabels()), "annotations": keys(p.GetAnnotations())}
	out.pick(p, podFields)
	out.pick(r.GetStatus(), networkFields)
	var ports []string
	for _, p := range output.SandboxPorts(r) {
		ports = append(ports, p.String())
	}
	out["ports"] = ports
	return out
}

// Keep selects optional data of containers.
type Keep struct{ Args, Env bool }

// newContainer returns the view of a container, and the path of the engine's own log.
func newContainer(c *runtimeapi.Container, r *runtimeapi.ContainerStatusResponse, pod *runtimeapi.PodSandboxMetadata, use *runtimeapi.ContainerStats, more Keep) (out message, engineLog string) {
	out = message{"Namespace": pod.GetNamespace(), "Pod": pod.GetName(), "labels": keys(c.GetLabels()), "annotations": keys(c.GetAnnotations())}
	out.pick(c, containerFields)
	out.pick(r.GetStatus(), statusFields)
	out.pick(use, statsFields)
	var details struct {
		LogPath     string `json:"logPath"`
		RuntimeSpec struct {
			Process struct{ Args, Env []string } `json:"process"`
		} `json:"runtimeSpec"`
	}
	if json.Unmarshal([]byte(r.GetInfo()["info"]), &details) != nil {
		return out, "" // the runtime's verbose status has no runtimeSpec in this form
	}
	process := details.RuntimeSpec.Process
	if len(process.Args) > 0 {
		out["Command"], _, _ = strings.Cut(process.Args[0], " ") // Args[0] may contain a whole command line
		out["MoreArguments"] = len(process.Args) - 1
	}
	if more.Args {
		out["Arguments"] = process.Args
	}
	var environment []string
	for _, variable := range process.Env {
		if name, _, _ := strings.Cut(variable, "="); !more.Env {
			variable = name
		}
		environment = append(environment, variable)
	}
	out["Environment"] = environment
	return out, details.LogPath
}

// isUnhealthy reports whether a container failed, was restarted, or does not start.
func isUnhealthy(c *runtimeapi.Container, s *runtimeapi.ContainerStatus) bool {
	ran := c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING || c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	return !ran || s.GetExitCode() != 0 || c.GetMetadata().GetAttempt() > 0
}
