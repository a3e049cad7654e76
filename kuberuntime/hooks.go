package kuberuntime

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
)

// postStart runs a container's postStart hook; a hook that fails kills the container.
func (s *syncing) postStart(ctx context.Context, c *v1.Container, id string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	m := s.m
	err := m.runHook(ctx, c.Lifecycle.PostStart, id, cmp.Or(s.ips...), c.Ports)
	if err == nil {
		m.event(s.pod, c.Name, EventPostStart, "postStart hook done")
		return nil
	}
	m.waits(s.pod, c.Name, EventPostStartFailed, ErrPostStart, "postStart hook: %v", err)
	target := killTarget{
		status:    &pod.ContainerStatus{ID: id, Name: c.Name, SandboxID: s.sandbox},
		container: c, pod: s.pod, ip: cmp.Or(s.ips...), message: "postStart hook failed",
	}
	return errors.Join(fmt.Errorf("%w: %w", ErrPostStart, err), m.killContainer(ctx, target, nil))
}

// preStop runs a hook within the grace period and says how long it took. A hook that
// fails does not keep the container from being stopped.
func (m *Manager) preStop(ctx context.Context, t killTarget, hook *v1.LifecycleHandler, grace time.Duration) time.Duration {
	start := m.o.Now()
	limited, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := m.runHook(limited, hook, t.status.ID, t.ip, portsOf(t)); err != nil {
		if errors.Is(limited.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("not done within %s", grace)
		}
		m.warn(t.pod, t.status.Name, EventPreStopFailed, "preStop hook: %v", err)
	} else {
		m.event(t.pod, t.status.Name, EventPreStop, "preStop hook done")
	}
	return m.o.Now().Sub(start)
}

func (m *Manager) runHook(ctx context.Context, hook *v1.LifecycleHandler, id, ip string, ports []v1.ContainerPort) error {
	switch {
	case hook.Exec != nil:
		timeout := time.Duration(0)
		if deadline, ok := ctx.Deadline(); ok {
			timeout = time.Until(deadline)
		}
		return describeExit(m.RunInContainer(ctx, id, hook.Exec.Command, timeout))
	case hook.HTTPGet != nil:
		return httpHook(ctx, hook.HTTPGet, ip, ports)
	case hook.Sleep != nil:
		timer := time.NewTimer(time.Duration(hook.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("no handler")
}

// describeExit adds what a failed command said.
func describeExit(out []byte, err error) error {
	var exit *ExitError
	if !errors.As(err, &exit) {
		return err
	}
	said := strings.TrimSpace(string(out))
	if said == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, said[:min(len(said), 1024)])
}

// httpHook sends the request to the pod. Where HTTPS meets a plain server it is sent again
// without TLS, as the kubelet does: hooks were plain once, whatever they said.
func httpHook(ctx context.Context, h *v1.HTTPGetAction, podIP string, ports []v1.ContainerPort) error {
	port, err := probe.Port(h.Port, ports)
	if err != nil {
		return err
	}
	host := h.Host
	if host == "" {
		host = podIP
	}
	if host == "" {
		return errors.New("the pod has no address")
	}
	scheme := strings.ToLower(string(h.Scheme))
	err = hookRequest(ctx, scheme, host, port, h)
	var plain tls.RecordHeaderError
	if scheme == "https" && (errors.As(err, &plain) || errors.Is(err, http.ErrSchemeMismatch)) {
		return hookRequest(ctx, "http", host, port, h)
	}
	return err
}

func hookRequest(ctx context.Context, scheme, host string, port int, h *v1.HTTPGetAction) error {
	target := probe.URL(scheme, host, port, h.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	probe.SetHeaders(req, "kube-lifecycle/crishim", h.HTTPHeaders)
	resp, err := probe.NewClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10)); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answered %s", target, resp.Status)
	}
	return nil
}
