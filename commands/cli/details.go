package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

const (
	detailsTimeout = 3 * time.Second // for figures that a table can do without
	detailsAtOnce  = 16
)

// ContainerDetails returns the status of containers by id. Containers that were removed meanwhile are missing. Containers
// whose call fails are missing too, and the error is one of their failures.
func ContainerDetails(ctx context.Context, conn *client.Conn, containers []*runtimeapi.Container, verbose bool) (map[string]*runtimeapi.ContainerStatusResponse, error) {
	return details(ctx, containers, (*runtimeapi.Container).GetId, func(ctx context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
		return conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
	})
}

// PodDetails is ContainerDetails for the sandboxes of things.
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
	_ = work.Wait()
	return answers, failed
}

// DetailsMissing warns that a list lacks details. It fails after an interrupt.
func DetailsMissing(ctx context.Context, p *Printer, what string, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	p.Warn("the status of %s is not known: %w", what, err)
	return nil
}

// ReadPodState returns the state that sync or apply keeps of a pod: its probes, and why and how long a container
// waits. The state is nil for pods of other tools and of a remote runtime. sandboxes are the ids of the pod's
// sandboxes.
func ReadPodState(p *Printer, dirs pod.Dirs, conn *client.Conn, uid string, sandboxes ...string) *kuberuntime.PodState {
	if conn.Remote() != "" {
		return nil
	}
	state, err := kuberuntime.ReadState(dirs, uid, sandboxes...)
	if err != nil {
		p.Debugf("read the state of pod %s: %v", uid, err)
	}
	return state
}

// ManagedPods returns the state that sync and apply keep of the given pods and of the pods of the given containers, by
// the id of the sandbox.
func ManagedPods(p *Printer, dirs pod.Dirs, conn *client.Conn, pods []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) map[string]output.ManagedPod {
	uids, managed := map[string]string{}, map[string]output.ManagedPod{}
	for _, pod := range pods {
		uids[pod.GetId()] = pod.GetMetadata().GetUid()
	}
	for _, c := range containers {
		uids[c.GetPodSandboxId()] = c.GetLabels()[kube.LabelPodUID]
	}
	for sandbox, uid := range uids {
		if state := ReadPodState(p, dirs, conn, uid, sandbox); state != nil && (state.Sandbox == "" || state.Sandbox == sandbox) {
			managed[sandbox] = managedPod(state)
		}
	}
	return managed
}

// PodsWithoutSandbox returns rows for pods of sync and apply without a sandbox, and for manifests that sync cannot read. pods
// are the pods of the runtime.
func PodsWithoutSandbox(ctx context.Context, p *Printer, dirs pod.Dirs, conn *client.Conn, pods []*runtimeapi.PodSandbox, f *Filter) (rows []*runtimeapi.PodSandbox, known map[string]output.ManagedPod) {
	known = map[string]output.ManagedPod{}
	if conn.Remote() != "" {
		return nil, known
	}
	add := func(id string, meta *runtimeapi.PodSandboxMetadata, labels map[string]string, p output.ManagedPod) {
		p.NoSandbox = true
		known[id] = p
		rows = append(rows, &runtimeapi.PodSandbox{Id: id, Metadata: meta, Labels: labels, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY})
	}
	for _, one := range kuberuntime.InvalidManifests(dirs) {
		add(one.File, &runtimeapi.PodSandboxMetadata{Name: filepath.Base(one.File)}, nil, output.ManagedPod{Reason: "InvalidManifest"})
	}
	unmade := kuberuntime.FindUnmade(dirs, func(uid string) bool {
		return slices.ContainsFunc(pods, func(p *runtimeapi.PodSandbox) bool { return p.GetMetadata().GetUid() == uid })
	})
	if len(unmade) > 0 {
		o := kuberuntime.ConnOptions(conn)
		o.Dirs, o.Now = dirs, p.Now
		m, err := kuberuntime.New(ctx, o)
		if err != nil {
			p.Debugf("look for pods without a sandbox: %v", err)
			return f.choosePods(rows), known
		}
		defer m.Close()
		unmade = slices.DeleteFunc(unmade, func(u kuberuntime.Unmade) bool { return !m.IsUnmade(ctx, u) })
	}
	for _, u := range unmade {
		p := output.ManagedPod{}
		if u.State != nil {
			p = managedPod(u.State)
		}
		p.Reason = cmp.Or(u.Reason, p.Reason)
		add(string(u.Pod.UID), &runtimeapi.PodSandboxMetadata{Name: u.Pod.Name, Namespace: u.Pod.Namespace, Uid: string(u.Pod.UID)}, u.Pod.Labels, p)
	}
	return f.choosePods(rows), known
}

func managedPod(state *kuberuntime.PodState) output.ManagedPod {
	p := output.ManagedPod{Managed: state.Managed, Reason: state.Reason}
	for _, c := range state.Containers {
		p.Containers = append(p.Containers, output.ManagedContainer{Name: c.Name, ID: c.ID, Probed: c.Probed, Container: kube.Container{
			Init: c.Init, Sidecar: c.Sidecar, Ephemeral: c.Ephemeral, Waits: c.Waiting, Next: c.NextTry, Ready: c.Ready,
		}})
	}
	return p
}

// RecordEnd records the command that ends a running container within the grace period after began, so that `crishim why`
// does not report a crash.
func RecordEnd(p *Printer, dirs pod.Dirs, conn *client.Conn, c *runtimeapi.Container, command string, began time.Time, grace time.Duration) {
	if conn.Remote() != "" || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	labels, name := c.GetLabels(), c.GetMetadata().GetName()
	err := kuberuntime.AppendStop(dirs, kuberuntime.Event{
		Time: began, Until: began.Add(grace), Namespace: labels[kube.LabelPodNamespace], Pod: labels[kube.LabelPodName], UID: labels[kube.LabelPodUID],
		Container: name, ID: c.GetId(), Reason: kuberuntime.EventKilling, Message: "stopping container " + name + " for " + command,
	})
	if err != nil {
		p.Debugf("keep that %s was ended: %v", name, err)
	}
}

// PointToDescribe prints a hint to run `crishim describe`, below a table with a failure.
func PointToDescribe(p *Printer, pod ContainerPath, id string) {
	name := fmt.Sprintf("%.13s", id)
	if pod.Pod != "" {
		name = pod.PodRef()
	}
	p.Note("hint: `crishim describe %s` shows more", shellwords.Quote(name))
}
