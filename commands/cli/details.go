package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

// detailsTimeout bounds the wait for what makes a table better and is not all of it.
const detailsTimeout = 3 * time.Second

// detailsAtOnce is how many of these questions are asked at the same time.
const detailsAtOnce = 16

// ContainerDetails asks for the status of containers. What is gone meanwhile is missing in
// the answer; what cannot be had, too, with the error of one.
func ContainerDetails(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container, verbose bool) (map[string]*runtimeapi.ContainerStatusResponse, error) {
	return details(ctx, containers, (*runtimeapi.Container).GetId, func(ctx context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
		return conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
	})
}

// PodDetails is ContainerDetails for sandboxes; sandbox returns the id of the one that a thing
// belongs to.
func PodDetails[T any](ctx context.Context, conn *client.Conn, things []T, sandbox func(T) string, verbose bool) (map[string]*runtimeapi.PodSandboxStatusResponse, error) {
	return details(ctx, things, sandbox, func(ctx context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error) {
		return conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
	})
}

func details[T, R any](ctx context.Context, things []T, id func(T) string, ask func(context.Context, string) (R, error)) (map[string]R, error) {
	ctx, cancel := context.WithTimeout(ctx, detailsTimeout)
	defer cancel()
	var mu sync.Mutex
	answers, asked := map[string]R{}, map[string]bool{}
	var failed error
	var work errgroup.Group
	work.SetLimit(detailsAtOnce)
	for _, thing := range things {
		id := id(thing)
		if asked[id] {
			continue
		}
		asked[id] = true
		work.Go(func() error {
			answer, err := ask(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				answers[id] = answer
			case !IsGone(err) && failed == nil:
				failed = err
			}
			return nil
		})
	}
	_ = work.Wait() // without errors
	return answers, failed
}

// DetailsMissing warns about details that a list does not get: it is shown without
// them, unless the user has left.
func DetailsMissing(ctx context.Context, env *Env, what string, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	env.Warn("the status of %s is not known: %s", what, Sentence(env, err))
	return nil
}

// PodState returns what sync or apply knows of a pod and its runtime does not: whether it is ready by its probes, and
// why, and until when, a container waits. It is nil for pods of others. It reads a file, and calls no runtime.
// sandboxes are the ids of those that the pod has.
func (env *Env) PodState(uid string, sandboxes ...string) *kuberuntime.PodState {
	state, err := kuberuntime.ReadState(pod.DefaultDirs(env.LookupEnv), uid, sandboxes...)
	if err != nil {
		env.Debugf("read the state of pod %s: %v", uid, err)
	}
	return state
}

// WaitingContainers returns why containers of sync and apply wait for their next start, by id.
func (env *Env) WaitingContainers(containers []*runtimeapi.Container) map[string]output.Waiting {
	waiting, read := map[string]output.Waiting{}, map[string]*kuberuntime.PodState{}
	for _, c := range containers {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		state, done := read[c.GetPodSandboxId()]
		if !done {
			state = env.PodState(c.GetLabels()[kube.LabelPodUID], c.GetPodSandboxId())
			read[c.GetPodSandboxId()] = state
		}
		if s := state.Container(c.GetMetadata().GetName()); s != nil && s.ID == c.GetId() && s.Waiting != "" {
			waiting[c.GetId()] = output.Waiting{Reason: s.Waiting, Next: s.NextTry}
		}
	}
	return waiting
}

// ManagedPods returns what sync and apply know of their pods, by the sandbox's id.
func (env *Env) ManagedPods(pods []*runtimeapi.PodSandbox) map[string]output.ManagedPod {
	managed := map[string]output.ManagedPod{}
	for _, p := range pods {
		state := env.PodState(p.GetMetadata().GetUid(), p.GetId())
		if state == nil || state.Sandbox != "" && state.Sandbox != p.GetId() {
			continue
		}
		known := output.ManagedPod{Init: map[string]bool{}, Unready: map[string]bool{}, Unprobed: map[string]bool{}, Missing: map[string]output.Waiting{}}
		for _, c := range state.Containers {
			switch {
			case c.Ephemeral:
			case c.Init && !c.Sidecar:
				known.Init[c.ID] = true
			case c.ID == "" && c.Waiting != "":
				known.Missing[c.Name] = output.Waiting{Reason: c.Waiting, Next: c.NextTry}
			case state.Managed && c.Probed && !c.Ready:
				known.Unready[c.ID] = true
			case !state.Managed && c.Probed:
				known.Unprobed[c.ID] = true
			}
		}
		managed[p.GetId()] = known
	}
	return managed
}

// PointToDescribe says, below a table with something that has failed, what shows why.
func (env *Env) PointToDescribe(pod Source, id string) {
	name := fmt.Sprintf("%.13s", id)
	if pod.Pod != "" {
		name = pod.PodRef()
	}
	env.Note("hint: `crishim describe %s` shows more", name)
}
