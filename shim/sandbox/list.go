package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

func (s *Service) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f := r.GetFilter()
	args := filters.NewArgs(filters.Arg("label", state.LabelType+"="+state.TypeSandbox))
	if f.GetId() != "" {
		args.Add("id", f.GetId())
	}
	for k, v := range f.GetLabelSelector() {
		args.Add("label", state.EncodeLabelKey(k)+"="+v)
	}
	ready := f.GetState() != nil && f.GetState().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	summaries, err := s.Engine.ContainerList(ctx, container.ListOptions{All: !ready, Filters: args})
	if err != nil {
		return nil, fmt.Errorf("list pod sandboxes: %w", err)
	}
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, c := range summaries {
		p := fromSummary(c)
		if p != nil && (f.GetState() == nil || f.GetState().GetState() == p.GetState()) && strings.HasPrefix(p.GetId(), f.GetId()) &&
			state.MatchLabels(p.GetLabels(), f.GetLabelSelector()) && !s.pending.has(p, c) {
			resp.Items = append(resp.Items, p)
		}
	}
	slices.SortStableFunc(resp.Items, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	return resp, nil
}

func fromSummary(c container.Summary) *runtimeapi.PodSandbox {
	found, ok := state.DecodeSandbox(state.ListedName(c), c.Labels)
	if !ok {
		return nil
	}
	p := &runtimeapi.PodSandbox{
		Id:             c.ID,
		Metadata:       found.Metadata,
		State:          runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		CreatedAt:      c.Created * int64(time.Second),
		Labels:         found.Labels,
		Annotations:    found.Annotations,
		RuntimeHandler: found.RuntimeHandler,
	}
	if !found.Created.IsZero() {
		p.CreatedAt = found.Created.UnixNano()
	}
	switch c.State {
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		p.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return p
}
