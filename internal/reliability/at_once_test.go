package reliability

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// atOnce runs do concurrently for several clients.
func atOnce(n int, do func(n int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	all.Wait()
	return errs
}

// TestTwoClientsAtOnceOnEngine has two clients of serve run each step of a pod's life concurrently. After each step
// there is one pod with one container, and nothing after the last.
func TestTwoClientsAtOnceOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	p := h.pod(t)
	clients := []*pod{p.another(), p.another()}
	for _, st := range steps() {
		errs := atOnce(len(clients), func(i int) error { return st.call(clients[i], t.Context(), k.serve) })
		done := 0
		for _, err := range errs {
			switch {
			case err == nil:
				done++
			case st.name != "RunPodSandbox" && st.name != "CreateContainer", status.Code(err) != codes.AlreadyExists:
				t.Errorf("%s: %v", st.name, err)
			}
		}
		if done == 0 {
			t.Fatalf("%s: nobody succeeded: %v", st.name, errs)
		}
		found, err := p.onEngine(t.Context())
		if err != nil || len(found) > 2 {
			t.Errorf("%s: got %v, %v", st.name, found, err)
		}
		if done > 1 && st.name == "RunPodSandbox" {
			t.Errorf("%s: both succeeded", st.name)
		}
		// A repeated request replaces an unstarted leftover. This may be the second client's request after the first
		// has succeeded, so only the existing objects count.
		for _, c := range clients {
			if _, there := found[c.id]; there {
				p.id = c.id
			}
			if _, there := found[c.containerID]; there {
				p.containerID = c.containerID
			}
		}
		for _, c := range clients {
			c.id, c.containerID = p.id, p.containerID
		}
		k.truthful(t, p)
	}
	k.gone(t, p)
	k.serve.stop()
}

func (p *pod) another() *pod { return &pod{host: p.host, label: p.label, config: p.config} }

// TestOppositeClientsAtOnceOnEngine has one client create and inspect containers in a pod while another removes the
// pod.
func TestOppositeClientsAtOnceOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	p := k.running(t)
	maker := p.another()
	maker.id = p.id
	_ = atOnce(3, func(i int) error {
		switch i {
		case 0:
			return errors.Join(p.stop(t.Context(), k.serve), p.remove(t.Context(), k.serve))
		case 1:
			_, err := p.listed(t.Context(), k.serve)
			return err
		}
		c := p.container()
		c.Metadata.Name = "late"
		r, err := k.serve.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: c, SandboxConfig: p.config})
		if err == nil {
			maker.containerID = r.GetContainerId()
			err = maker.start(t.Context(), k.serve)
		}
		return err
	})
	// A late create may leave a container without a pod. A kubelet retries the removal.
	wait(t, func() error {
		_ = p.stop(t.Context(), k.serve)
		if err := p.remove(t.Context(), k.serve); err != nil {
			return err
		}
		return p.left(t.Context())
	})
	k.serve.stop()
}

// TestTwoCommandsAtOnceOnEngine runs two processes with separate embedded shims on one engine.
func TestTwoCommandsAtOnceOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.pod(t)
	crishim := h.crishim(t, embedded(h.endpoint()))
	both := func(args ...string) []ended {
		var mu sync.Mutex
		var all []ended
		_ = atOnce(2, func(int) error {
			r := crishim.run(t.Context(), args...)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
			return nil
		})
		return all
	}
	name := p.config.GetMetadata().GetName()
	p.label = "io.kubernetes.pod.name=" + name
	manifest := p.file(t, "pod.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: reliability, labels: {test: %s}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %q, imagePullPolicy: Never, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 1; done"]}]
`, name, name, testImage))
	ref := "reliability/" + name
	for _, args := range [][]string{
		{"apply", "-f", manifest}, {"stop", "-t", "1", ref + "/main"}, {"apply", "-f", manifest}, {"stopp", ref}, {"apply", "-f", manifest}, {"delete", ref},
	} {
		done := 0
		for _, r := range both(args...) {
			if r.code == 0 {
				done++
			} else if !strings.HasPrefix(r.err, "crishim: ") && !strings.Contains(r.err, "\ncrishim: ") || strings.Contains(r.err, "panic") {
				t.Errorf("%v: %+v", args, r)
			}
		}
		if done == 0 {
			t.Errorf("%v: nobody succeeded", args)
		}
		found, err := p.onEngine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, r := range found {
			if r {
				running++
			}
		}
		if args[0] == "apply" && running != 2 {
			t.Errorf("after %v twice: got %v, want a sandbox and a container that run", args, found)
		}
	}
	if err := p.left(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRemovedBehindTheBackOnEngine removes containers with docker. serve must report them as gone, and the pod can be
// removed.
func TestRemovedBehindTheBackOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	take := func(id string) {
		t.Helper()
		if err := h.engine.ContainerRemove(t.Context(), id, container.RemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("container", func(t *testing.T) {
		p := k.running(t)
		crishim := h.crishim(t, k.serve.endpoint())
		sessions := make(chan ended, 3)
		for _, args := range [][]string{{"exec", p.containerID, "sleep", "1000"}, {"logs", "-f", p.containerID}, {"wait", p.containerID}} {
			go func() { sessions <- crishim.run(t.Context(), args...) }()
		}
		wait(t, func() error { return p.runs(t.Context(), "sleep 1000") })
		if _, err := p.onEngine(t.Context()); err != nil { // records the traces
			t.Error(err)
		}
		take(p.containerID)
		for range cap(sessions) {
			if r := <-sessions; strings.Contains(r.err, "panic") {
				t.Errorf("a session ends with %+v", r)
			}
		}
		k.truthful(t, p)
		if _, err := k.serve.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: p.containerID}); status.Code(err) != codes.NotFound {
			t.Errorf("status: got %v", err)
		}
		if err := p.start(t.Context(), k.serve); status.Code(err) != codes.NotFound {
			t.Errorf("start: got %v", err)
		}
		if _, err := k.serve.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: p.containerID}); err != nil {
			t.Errorf("remove: %v", err)
		}
		if _, err := k.serve.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{}); err != nil {
			t.Errorf("stats: %v", err)
		}
		k.gone(t, p)
	})
	t.Run("sandbox", func(t *testing.T) {
		p := k.running(t)
		if _, err := p.onEngine(t.Context()); err != nil {
			t.Error(err)
		}
		take(p.id)
		wait(t, func() error {
			_, err := k.serve.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
			if status.Code(err) != codes.NotFound {
				return fmt.Errorf("status: got %w", err)
			}
			return nil
		})
		// Its containers can still be found and are removed with it.
		for _, f := range []func(context.Context, runtimeapi.RuntimeServiceClient) error{p.stop, p.remove, p.remove} {
			if err := f(t.Context(), k.serve); err != nil {
				t.Error(err)
			}
		}
		k.gone(t, p)
	})
	k.serve.stop()
}
