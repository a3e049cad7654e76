package cli

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
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
