package main

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A step is one call of a life cycle, with what cri-dockerd took where it was
// measured last.
type step struct {
	name       string
	target     target
	criDockerd float64
}

func steps() []step {
	atMost := func(ratio float64) target { return target{MaxRatio: ratio} }
	return []step{
		{"RunPodSandbox", atMost(1), 203}, {"PodSandboxStatus", target{Max: 0.5}, 4.1}, {"CreateContainer", atMost(1.05), 10},
		{"StartContainer", atMost(1.05), 63}, {"ContainerStatus", target{Max: 0.5}, 1.5}, {"StopContainer", atMost(1.05), 39},
		{"RemoveContainer", atMost(1.05), 6}, {"StopPodSandbox", atMost(1.05), 110}, {"RemovePodSandbox", atMost(1.05), 6.5},
	}
}

// lifeCycle is what a kubelet does, over gRPC on serve and on cri-dockerd.
func (b *bench) lifeCycle(ctx context.Context) error {
	var peer *runtime
	if b.criDockerd != "" {
		var err error
		if peer, err = b.startCRIDockerd(ctx); err != nil {
			return err
		}
		b.undo = append(b.undo, peer.stop)
	}
	rec, err := b.recordLife(ctx)
	if err != nil {
		return err
	}
	ours, theirs, raw := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for i := range b.runs/2 + 1 {
		if i == 1 {
			clear(ours)
			clear(theirs)
			clear(raw)
		}
		if err := b.lifeOf(ctx, b.serve, ours, nil); err != nil {
			return err
		}
		if err := b.rawLife(ctx, rec, raw); err != nil {
			return err
		}
		if peer == nil {
			continue
		}
		if err := b.lifeOf(ctx, peer, theirs, nil); err != nil {
			return err
		}
	}
	for _, s := range steps() {
		r := row{What: s.name, Unit: milliseconds, Ours: summarize(ours[s.name]), Target: s.target, PeerName: "cri-dockerd"}
		if peer == nil {
			b.add(r.quote(r.PeerName, s.criDockerd))
		} else {
			b.add(r.compare(r.PeerName, ours[s.name], theirs[s.name]))
		}
		if len(raw[s.name]) > 0 {
			r.Target = target{}
			b.add(r.compare("the engine's own calls", ours[s.name], raw[s.name]))
		}
	}
	return nil
}

// compare fills in a peer that was measured in turns with ours.
func (r row) compare(name string, ours, theirs []float64) row {
	var ratios []float64
	for i, v := range ours {
		ratios = append(ratios, v/theirs[i])
	}
	r.PeerName, r.Peer, r.Ratio = name, summarize(theirs), summarize(ratios)
	return r
}

// lifeOf takes one pod with one container through its whole life and notes
// how long each step takes. After each, what there is of the two is told.
func (b *bench) lifeOf(ctx context.Context, r *runtime, took map[string][]float64, after func(step string, made [2]string)) error {
	config := podConfig("life")
	var pod, container string
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"RunPodSandbox", func() (err error) { pod, err = r.runPod(ctx, config); return err }},
		{"PodSandboxStatus", func() error { _, err := r.podIP(ctx, pod); return err }},
		{"CreateContainer", func() (err error) {
			container, err = r.createContainer(ctx, pod, config, containerConfig(b.image, "life", "sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"))
			return err
		}},
		{"StartContainer", func() error {
			_, err := r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container})
			return err
		}},
		{"ContainerStatus", func() error {
			_, err := r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container})
			return err
		}},
		{"StopContainer", func() error {
			_, err := r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container})
			return err
		}},
		{"RemoveContainer", func() error {
			_, err := r.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: container})
			return err
		}},
		{"StopPodSandbox", func() error {
			_, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod})
			return err
		}},
		{"RemovePodSandbox", func() error {
			_, err := r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod})
			return err
		}},
	} {
		start := time.Now()
		if err := s.do(); err != nil {
			return err
		}
		took[s.name] = append(took[s.name], since(start))
		if after != nil {
			after(s.name, [2]string{pod, container})
		}
	}
	return nil
}
