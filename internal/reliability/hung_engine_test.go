package reliability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestEngineHangsOnEngine simulates an engine stopped by SIGSTOP, which keeps its connections and answers nothing.
// serve reports this within 15 s and the recovery within 10 s. Calls in between end at their deadline.
func TestEngineHangsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	proxy := startProxy(t, h.endpoint())
	s := startServe(t, proxy.Host)
	ready := func(want bool) func() error { return func() error { return s.ready(t.Context(), want) } }
	wait(t, ready(true))
	wait(t, func() error { // until lists are cached, so that only the ping detects the hang
		var before int
		for range 2 { // the first one reads changes by other tests
			before = len(proxy.Calls())
			if _, err := s.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
				return err
			}
		}
		if len(proxy.Calls()) != before {
			return errors.New("the engine is asked")
		}
		return nil
	})
	thaw := proxy.Freeze()
	defer thaw()
	began := time.Now()
	wait(t, ready(false))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("RuntimeReady was true for %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began = time.Now()
	_, err := s.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded || took > 10*time.Second {
		t.Errorf("a list ended after %s with %v", took, err)
	}
	thaw()
	began = time.Now()
	wait(t, ready(true))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("RuntimeReady was false for %s", took)
	}
}

// ready returns an error unless RuntimeReady is as wanted, with a reason if false.
func (s *serve) ready(ctx context.Context, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := s.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range r.GetStatus().GetConditions() {
		if c.GetType() != runtimeapi.RuntimeReady {
			continue
		}
		if c.GetStatus() != want || want != (c.GetReason() == "") || !want && (c.GetReason() != "DockerDaemonNotReady" || c.GetMessage() == "") {
			return fmt.Errorf("got %v, want RuntimeReady=%t", c, want)
		}
		return nil
	}
	return errors.New("there is no condition RuntimeReady")
}

// TestEngineGoesAndComesBackOnEngine checks that serve reports why the engine is unavailable. After the engine's return
// serve is ready, lists the containers and reports the changes in the meantime as events.
func TestEngineGoesAndComesBackOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k, elsewhere := newKiller(t, h), startServe(t, h.endpoint())
	lives, dies, goes := k.running(t), k.running(t), k.running(t)
	comes := h.pod(t)
	told := k.events(t, lives)
	wait(t, func() error { return k.serve.ready(t.Context(), true) })

	k.proxy.Down(true)
	wait(t, func() error { return k.serve.ready(t.Context(), false) })
	if err := h.engine.ContainerKill(t.Context(), dies.containerID, "KILL"); err != nil {
		t.Fatal(err)
	}
	if err := h.engine.ContainerRemove(t.Context(), goes.containerID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(*pod, context.Context, runtimeapi.RuntimeServiceClient) error{(*pod).run, (*pod).create, (*pod).start} {
		if err := step(comes, t.Context(), elsewhere); err != nil {
			t.Fatal(err)
		}
	}
	if listed, err := lives.listed(t.Context(), k.serve); status.Code(err) != codes.Unavailable {
		t.Errorf("a list without the engine: got %v, %v, want Unavailable", listed, err)
	}

	k.proxy.Down(false)
	wait(t, func() error { return k.serve.ready(t.Context(), true) })
	for _, want := range []struct {
		*pod
		containers map[string]bool
	}{
		{lives, map[string]bool{lives.containerID: true}},
		{dies, map[string]bool{dies.containerID: false}},
		{goes, nil},
		{comes, map[string]bool{comes.containerID: true}},
	} {
		containers := map[string]bool{want.id: true}
		maps.Copy(containers, want.containers)
		wait(t, func() error {
			listed, err := want.listed(t.Context(), k.serve)
			if err == nil && !maps.Equal(listed, containers) {
				err = fmt.Errorf("listed: got %v, want %v", listed, containers)
			}
			return err
		})
	}
	told(dies.containerID, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	told(goes.containerID, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	told(comes.containerID, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	for _, p := range []*pod{lives, dies, goes, comes} {
		k.gone(t, p)
	}
	k.serve.stop()
	elsewhere.stop()
}
