package container

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type readiness struct {
	printer *cli.Printer
	dirs    pod.Dirs
	conn    *client.Conn
	manager *kuberuntime.Manager // runs probes; nil until one is needed
	last    attempt
}

// attempt is the result of running each startup and readiness probe of a pod once.
type attempt struct {
	sandbox string
	at      time.Time
	ready   bool
	missing string
}

// probePeriod is the shortest period of a probe in a manifest.
const probePeriod = time.Second

func (r *readiness) close() {
	if r.manager != nil {
		r.manager.Close()
	}
}

// ofPod reports whether a pod is ready in the sense of kubectl, and returns what is missing. While sync or apply manages
// the pod, the results of their probes count. If no process manages the pod any more, ofPod runs each startup and readiness
// probe once. A pod without probes is ready if all its containers run. Ephemeral containers are ignored.
func (r *readiness) ofPod(ctx context.Context, sandbox *runtimeapi.PodSandboxStatus) (bool, string, error) {
	if sandbox.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return false, "", nil
	}
	list, err := r.conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox.GetId()}})
	if err != nil {
		return false, "", err
	}
	newest := newestAttempts(list.GetContainers())
	state := cli.ReadPodState(r.printer, r.dirs, r.conn, sandbox.GetMetadata().GetUid(), sandbox.GetId())
	if state == nil || state.Sandbox != sandbox.GetId() && !state.Managed {
		return allRun(ctx, r.conn, newest)
	}
	missing, probed := missingOf(state, newest)
	if len(missing) == 0 && probed && !state.Managed {
		return r.byOneAttempt(ctx, sandbox, list.GetContainers())
	}
	return len(missing) == 0 && (state.Ready || !state.Managed), strings.Join(missing, ", "), nil
}

// missingOf lists the containers that are not ready in a pod's recorded state, and reports whether any container is
// probed.
func missingOf(state *kuberuntime.PodState, newest map[string]*runtimeapi.Container) (missing []string, probed bool) {
	for _, c := range state.Containers {
		probed = probed || c.Probed && !c.Ephemeral
		running := newest[c.Name].GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		switch {
		case c.Ephemeral, c.Init && !c.Sidecar: // an init container has run before the regular containers
		case kube.IsPaused(newest[c.Name]):
			missing = append(missing, fmt.Sprintf("container %s is paused", c.Name))
		case !running && c.Waiting != "":
			missing = append(missing, fmt.Sprintf("container %s waits: %s", c.Name, c.Waiting))
		case !running:
			missing = append(missing, fmt.Sprintf("container %s does not run", c.Name))
		case state.Managed && !(c.Ready && newest[c.Name].GetId() == c.ID):
			missing = append(missing, fmt.Sprintf("container %s is not ready", c.Name))
		}
	}
	return missing, probed
}

// byOneAttempt runs each startup and readiness probe of a pod once. Within probePeriod it returns the previous result.
func (r *readiness) byOneAttempt(ctx context.Context, sandbox *runtimeapi.PodSandboxStatus, containers []*runtimeapi.Container) (bool, string, error) {
	if r.last.sandbox == sandbox.GetId() && r.printer.Now().Sub(r.last.at) < probePeriod {
		return r.last.ready, r.last.missing, nil
	}
	if r.manager == nil {
		o := kuberuntime.ConnOptions(r.conn)
		o.Dirs, o.Now = r.dirs, r.printer.Now
		m, err := kuberuntime.New(ctx, o)
		if err != nil {
			return false, "", err
		}
		r.manager = m
	}
	meta := sandbox.GetMetadata()
	d, err := r.manager.Describe(ctx, &pod.Pod{
		UID: meta.GetUid(), Name: meta.GetName(), Namespace: meta.GetNamespace(),
		Sandboxes: []*runtimeapi.PodSandbox{{Id: sandbox.GetId()}}, Containers: containers,
	})
	if err != nil {
		return false, "", err
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(d.Unready)) {
		missing = append(missing, fmt.Sprintf("container %s is not ready: %s", name, d.Unready[name]))
	}
	r.last = attempt{sandbox: sandbox.GetId(), at: r.printer.Now(), ready: d.View.Ready, missing: strings.Join(missing, ", ")}
	return r.last.ready, r.last.missing, nil
}

// newestAttempts returns the newest attempt of each container by name, or by id for a container without a name. Debug
// containers are omitted.
func newestAttempts(containers []*runtimeapi.Container) map[string]*runtimeapi.Container {
	newest := map[string]*runtimeapi.Container{}
	for _, c := range containers {
		name := cli.ContainerPathOf(c).Container
		if last := newest[name]; c.GetLabels()[kube.LabelDebug] == "" && (last == nil || last.GetCreatedAt() <= c.GetCreatedAt()) {
			newest[name] = c
		}
	}
	return newest
}

// allRun reports whether all containers of a pod run, except completed init containers. It is used if the manifest of the
// pod is unknown.
func allRun(ctx context.Context, conn *client.Conn, newest map[string]*runtimeapi.Container) (bool, string, error) {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		c := newest[name]
		state := cli.ContainerState(c.GetState())
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			if !kube.IsPaused(c) {
				continue
			}
			state = "paused"
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			if err != nil && !cli.IsGone(err) {
				return false, "", err
			}
			if kube.IsDoneInit(res.GetStatus(), newest) {
				continue
			}
		}
		missing = append(missing, fmt.Sprintf("container %s is %s", name, state))
	}
	return len(missing) == 0, strings.Join(missing, ", "), nil
}
