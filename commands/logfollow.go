package commands

import (
	"cmp"
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/logfile"
)

// restartPace says how long an ended container's next attempt is waited for.
type restartPace struct {
	asking time.Duration // between two looks
	grace  time.Duration // without --follow-restarts
}

// restarts is long enough for whoever restarts a container at once.
var restarts = restartPace{asking: 250 * time.Millisecond, grace: 3 * time.Second}

// followLog is readLog for --follow: it goes on in the container's next
// attempt.
func followLog(ctx context.Context, now func() time.Time, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(source, logfile.Entry) error) error {
	for {
		if err := readLog(ctx, conn, o, c, emit); err != nil {
			return err
		}
		if o.isOver(now()) {
			return nil
		}
		patience := restarts.grace
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			patience = 0 // nobody is about to restart what ended long ago
		}
		if o.restarts {
			patience = -1
		}
		next, err := nextAttempt(ctx, conn, c, patience)
		if next == nil || err != nil {
			return err
		}
		c = next
		o.read.Tail, o.read.Since, o.reopen = -1, time.Time{}, false
	}
}

// isOver says that what --until lets through is written.
func (o logsOptions) isOver(now time.Time) bool {
	return !o.read.Until.IsZero() && now.After(o.read.Until)
}

// nextAttempt waits for the attempt of a container behind c that has started,
// as long as the pod is there to start it and patience lasts (below 0: for
// ever); nil if there is none.
func nextAttempt(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, patience time.Duration) (*runtimeapi.Container, error) {
	for waited := time.Duration(0); ; waited += restarts.asking {
		pods, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return nil, err
		}
		list, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			return nil, err
		}
		sandboxes, ready := sandboxesOf(pods.GetItems(), c)
		if next := attemptAfter(list.GetContainers(), c, sandboxes); next != nil {
			return namePods(ctx, conn, []*runtimeapi.Container{next})[0], nil
		}
		if !ready || patience >= 0 && waited >= patience {
			return nil, nil
		}
		if pause(ctx, restarts.asking) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// sandboxesOf are the ids of all sandboxes of a container's pod, and whether
// one of them is ready.
func sandboxesOf(pods []*runtimeapi.PodSandbox, c *runtimeapi.Container) (ids map[string]bool, ready bool) {
	ids = map[string]bool{c.GetPodSandboxId(): true}
	uid := c.GetLabels()[labelPodUID]
	for _, p := range pods {
		if p.GetId() == c.GetPodSandboxId() && uid == "" {
			uid = p.GetMetadata().GetUid()
		}
	}
	for _, p := range pods {
		if p.GetId() == c.GetPodSandboxId() || uid != "" && p.GetMetadata().GetUid() == uid {
			ids[p.GetId()] = true
			ready = ready || p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		}
	}
	return ids, ready
}

// attemptAfter is the attempt that came next after c among those that have
// started.
func attemptAfter(list []*runtimeapi.Container, c *runtimeapi.Container, sandboxes map[string]bool) *runtimeapi.Container {
	byAge := func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()), cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()))
	}
	var later []*runtimeapi.Container
	for _, other := range list {
		started := other.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED
		if started && other.GetMetadata().GetName() == c.GetMetadata().GetName() && sandboxes[other.GetPodSandboxId()] && byAge(other, c) > 0 {
			later = append(later, other)
		}
	}
	if len(later) == 0 {
		return nil
	}
	return slices.MinFunc(later, byAge)
}
