package container

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
)

// podReady reports whether a pod is ready as kubectl means it: by the probes of sync or apply while one of them keeps
// the pod, else when all its containers run. What is missing is in the second value. An ephemeral
// container does not count.
func podReady(ctx context.Context, env *cli.Env, conn *client.Conn, sandbox *runtimeapi.PodSandboxStatus) (bool, string, error) {
	if sandbox.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return false, "", nil
	}
	list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox.GetId()}})
	if err != nil {
		return false, "", err
	}
	newest := newestAttempts(list.GetContainers())
	state := env.PodState(sandbox.GetMetadata().GetUid(), sandbox.GetId())
	if state == nil || state.Sandbox != sandbox.GetId() && !state.Kept {
		return allRun(ctx, conn, newest)
	}
	var missing []string
	for _, c := range state.Containers {
		running := newest[c.Name].GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		switch {
		case c.Ephemeral, c.Init && !c.Sidecar: // an init container has run before those that matter
		case !running && c.Waiting != "":
			missing = append(missing, fmt.Sprintf("container %s waits: %s", c.Name, c.Waiting))
		case !running:
			missing = append(missing, fmt.Sprintf("container %s does not run", c.Name))
		case state.Kept && !(c.Ready && newest[c.Name].GetId() == c.ID):
			missing = append(missing, fmt.Sprintf("container %s is not ready", c.Name))
		}
	}
	return len(missing) == 0 && (state.Ready || !state.Kept), strings.Join(missing, ", "), nil
}

// newestAttempts returns the containers by name, or by id where they have none, without those of debug.
func newestAttempts(containers []*runtimeapi.Container) map[string]*runtimeapi.Container {
	newest := map[string]*runtimeapi.Container{}
	for _, c := range containers {
		name := cli.SourceOf(c).Container
		if last := newest[name]; c.GetLabels()[kube.LabelDebug] == "" && (last == nil || last.GetCreatedAt() <= c.GetCreatedAt()) {
			newest[name] = c
		}
	}
	return newest
}

// allRun reports whether all containers of a pod of which no manifest is known run, or were init containers.
func allRun(ctx context.Context, conn *client.Conn, newest map[string]*runtimeapi.Container) (bool, string, error) {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		c := newest[name]
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			continue
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			if err != nil && !cli.IsGone(err) {
				return false, "", err
			}
			if kube.IsDoneInit(res.GetStatus(), newest) {
				continue
			}
		}
		missing = append(missing, fmt.Sprintf("container %s is %s", name, cli.ContainerState(c.GetState())))
	}
	return len(missing) == 0, strings.Join(missing, ", "), nil
}
