package stats

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

// ListMetricDescriptors describes the metrics of ListPodSandboxMetrics.
func (s *Service) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: descriptors()}, nil
}

// ListPodSandboxMetrics gives the metrics of the pods that run.
func (s *Service) ListPodSandboxMetrics(ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	metrics, err := s.listMetrics(ctx)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: metrics}, nil
}

// listMetrics does the work of ListPodSandboxMetrics. It needs the engine's
// host: most of the metrics are not among what the engine tells.
func (s *Service) listMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	sandboxes, err := s.targets(ctx, nil, state.LabelType+"="+state.TypeSandbox)
	if err != nil {
		return nil, err
	}
	if err := s.onHost(ctx, sandboxes); err != nil {
		return nil, err
	}
	members, err := s.targets(ctx, nil, state.LabelType+"="+state.TypeContainer)
	if err != nil {
		return nil, err
	}
	until := s.beginLayers(members...)
	samples, err := s.collect(ctx, members, measure)
	if err != nil {
		return nil, err
	}
	out := make([]*runtimeapi.PodSandboxMetrics, 0, len(sandboxes))
	for _, sandbox := range sandboxes {
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: sandbox.c.ID, Metrics: podMetrics(sandbox)}
		if err := s.addContainers(pod, sandbox, members, samples, until); err != nil {
			return nil, err
		}
		out = append(out, pod)
	}
	return out, nil
}

// onHost is an error where none of the sandboxes has its processes here, and
// they have not just ended.
func (s *Service) onHost(ctx context.Context, sandboxes []target) error {
	for _, t := range sandboxes {
		_, err := host.Cgroups(t.c.State.Pid, t.c.ID)
		if err == nil {
			return nil
		}
		again, inspectErr := s.inspect(ctx, t.c.ID)
		if inspectErr == nil && again.running() && again.c.State.Pid == t.c.State.Pid {
			return fmt.Errorf("metrics of pods can be had only on the engine's host: %w: %w", err, errdefs.ErrNotImplemented)
		}
	}
	return nil
}

func (s *Service) addContainers(pod *runtimeapi.PodSandboxMetrics, sandbox target, members []target, samples map[string]sample, until time.Time) error {
	for _, t := range members {
		m, ok := samples[t.c.ID]
		if !ok || t.member.SandboxID != sandbox.c.ID {
			continue
		}
		v, err := s.view(t, m, until)
		if err != nil {
			return err
		}
		pod.ContainerMetrics = append(pod.ContainerMetrics, &runtimeapi.ContainerMetrics{
			ContainerId: t.c.ID, Metrics: valuesOf(v, labelsOf(t.member.Metadata.GetName(), t, t.member.Pod)),
		})
	}
	return nil
}

// labelsOf are the values of baseLabels, in their order.
func labelsOf(container string, t target, pod *runtimeapi.PodSandboxMetadata) []string {
	return []string{container, t.c.ID, t.c.Config.Image, strings.TrimPrefix(t.c.Name, "/"), pod.GetNamespace(), pod.GetName()}
}

func valuesOf(v *containerView, base []string) []*runtimeapi.Metric {
	var out []*runtimeapi.Metric
	for _, m := range containerMetrics() {
		for _, l := range m.values(v) {
			out = append(out, &runtimeapi.Metric{
				Name: m.name, MetricType: m.kind, Value: value(l.value), LabelValues: append(append([]string{}, base...), l.labels...),
			})
		}
	}
	return out
}

func podMetrics(sandbox target) []*runtimeapi.Metric {
	base := labelsOf("", sandbox, sandbox.sandbox.Metadata)
	var out []*runtimeapi.Metric
	for _, i := range podNetwork(sandbox) {
		for _, m := range networkMetrics() {
			out = append(out, &runtimeapi.Metric{
				Name: m.name, MetricType: counter, Value: value(m.pick(i)), LabelValues: append(append([]string{}, base...), i.name),
			})
		}
	}
	return out
}
