package sandbox

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/pause"
	"github.com/crishim/crishim/shim/state"
)

// RunPodSandbox makes and starts a sandbox and connects it. When it fails there
// is nothing left of it.
func (s *Service) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	if err := validate(r.GetConfig()); err != nil {
		return nil, err
	}
	unlock, err := s.creating.Lock(ctx, state.SandboxName(r.GetConfig().GetMetadata()))
	if err != nil {
		return nil, fmt.Errorf("wait for another request about pod %s: %w", r.GetConfig().GetMetadata().GetName(), err)
	}
	defer unlock()
	defer s.making.begin(state.SandboxName(r.GetConfig().GetMetadata()))()
	f, err := s.learn(ctx, r)
	if err != nil {
		return nil, err
	}
	id, err := s.execute(ctx, r, f)
	if err != nil {
		return nil, fmt.Errorf("run pod sandbox %s: %w", r.GetConfig().GetMetadata().GetName(), err)
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// learn gathers what the plan needs.
func (s *Service) learn(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (facts, error) {
	c := r.GetConfig()
	f := facts{
		network:  s.networks.ForNew(ctx, namespaces(c).GetNetwork() == runtimeapi.NamespaceMode_NODE),
		created:  s.now(),
		oomScore: s.oom.Allowed(sandboxOOM),
	}
	info, err := s.engine.Info(ctx)
	if err != nil {
		return f, fmt.Errorf("ask the docker engine about itself: %w", err)
	}
	f.cgroupDriver, f.security = info.CgroupDriver, info.SecurityOptions
	if f.handler, err = convert.RuntimeHandler(r.GetRuntimeHandler(), info); err != nil {
		return f, err
	}
	if f.seccomp, err = readSeccomp(c.GetLinux().GetSecurityContext()); err != nil {
		return f, err
	}
	f.image, err = pause.Ensure(ctx, s.engine, s.pauseImage)
	return f, err
}

// readSeccomp reads a localhost profile here, because its path is one of the
// node's and the engine takes the content.
func readSeccomp(sc *runtimeapi.LinuxSandboxSecurityContext) ([]byte, error) {
	profile, err := seccompProfile(sc)
	if err != nil || profile.GetProfileType() != runtimeapi.SecurityProfile_Localhost {
		return nil, err
	}
	content, err := bounded.ReadRegular(profile.GetLocalhostRef(), convert.MaxSeccomp)
	if err != nil {
		return nil, invalid("seccomp profile: %v", err)
	}
	return content, nil
}

// execute makes the sandbox and takes everything back when a step fails.
func (s *Service) execute(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, f facts) (_ string, err error) {
	var back undo
	done := func() {}
	defer func() {
		if err != nil {
			err = back.run(ctx, err)
		}
		done()
	}()
	id, err := s.createAndStart(ctx, r, f, &back)
	if err != nil {
		return "", err
	}
	c, err := s.engine.ContainerInspect(ctx, id)
	if err != nil {
		return "", fmt.Errorf("look at the new sandbox: %w", err)
	}
	box, err := fromInspect(c)
	if err != nil {
		return "", err
	}
	pod, release := box.pod()
	done = release
	back.add(func(ctx context.Context) error { return f.network.TearDown(ctx, pod) })
	if err := f.network.SetUp(ctx, pod); err != nil {
		return "", fmt.Errorf("set up the network: %w", err)
	}
	return id, nil
}

// createAndStart does so a second time with a milder oom score where the host
// turns out to forbid the first one.
func (s *Service) createAndStart(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, f facts, back *undo) (string, error) {
	p, err := plan(r, f)
	if err != nil {
		return "", err
	}
	id, err := s.create(ctx, p)
	if err != nil {
		return "", err
	}
	s.making.made(state.SandboxName(r.GetConfig().GetMetadata()), id)
	remove := func(ctx context.Context) error { return s.removeContainer(ctx, id) }
	err = s.engine.ContainerStart(ctx, id, container.StartOptions{})
	if err == nil {
		back.add(remove)
		return id, nil
	}
	refused := s.oom.Refused(f.oomScore, err)
	err = undo{remove}.run(ctx, fmt.Errorf("start the sandbox: %w", err))
	if !refused {
		return "", err
	}
	f.oomScore = s.oom.Allowed(f.oomScore)
	return s.createAndStart(ctx, r, f, back)
}
