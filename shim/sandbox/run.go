package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/pause"
	"github.com/crishim/crishim/shim/state"
)

// RunPodSandbox creates, starts and connects a sandbox. On failure it removes everything it created.
func (s *Service) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	if err := validate(r.GetConfig()); err != nil {
		return nil, err
	}
	pod, name := r.GetConfig().GetMetadata().GetName(), state.SandboxName(r.GetConfig().GetMetadata())
	unlock, err := s.creating.Lock(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("wait for another request about pod %s: %w", pod, err)
	}
	defer unlock()
	defer s.pending.begin(name)()
	f, err := s.gather(ctx, r)
	if err != nil {
		return nil, err
	}
	id, err := s.run(ctx, r, f)
	if err != nil {
		return nil, fmt.Errorf("run pod sandbox %s: %w", pod, err)
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func validate(c *runtimeapi.PodSandboxConfig) error {
	hostname := c.GetHostname()
	switch {
	case c == nil:
		return invalid("the pod sandbox config is missing")
	case c.GetMetadata() == nil:
		return invalid("the pod sandbox config has no metadata")
	case c.GetMetadata().GetName() == "":
		return invalid("the pod sandbox's metadata has no name")
	case len(hostname) > 63:
		return invalid("host name %q is longer than 63 characters", hostname)
	case strings.Trim(hostname, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "":
		return invalid("invalid host name %q: must contain only letters, digits, '-', '_' and '.'", hostname)
	case c.GetLogDirectory() != "" && !filepath.IsAbs(c.GetLogDirectory()):
		return invalid("log directory %q is not absolute", c.GetLogDirectory())
	case c.GetWindows() != nil:
		return invalid("the pod sandbox config is for Windows, the engine runs Linux containers")
	}
	for _, n := range [][2]string{{"name", c.GetMetadata().GetName()}, {"namespace", c.GetMetadata().GetNamespace()}, {"uid", c.GetMetadata().GetUid()}} {
		if len(n[1]) > maxName {
			return invalid("the pod's %s has %d bytes, more than %d", n[0], len(n[1]), maxName)
		}
	}
	// A control character such as a newline would add lines to resolv.conf.
	dns := c.GetDnsConfig()
	for what, values := range map[string][]string{"DNS server": dns.GetServers(), "DNS search domain": dns.GetSearches(), "DNS option": dns.GetOptions()} {
		for _, v := range values {
			if strings.ContainsFunc(v, unicode.IsControl) {
				return invalid("%s %q holds a control character", what, v)
			}
		}
	}
	for _, p := range c.GetPortMappings() {
		if err := validatePort(p); err != nil {
			return err
		}
	}
	sc := c.GetLinux().GetSecurityContext()
	if _, err := convert.RequestedUser(&runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: sc.GetRunAsUser(), RunAsGroup: sc.GetRunAsGroup(),
		SupplementalGroups: sc.GetSupplementalGroups(), SupplementalGroupsPolicy: sc.GetSupplementalGroupsPolicy(),
	}, ""); err != nil {
		return err
	}
	return validateNamespaces(sc.GetNamespaceOptions())
}

// maxName is Kubernetes' DNS1123SubdomainMaxLength.
const maxName = 253

func validatePort(p *runtimeapi.PortMapping) error {
	if _, err := protocol(p.GetProtocol()); err != nil {
		return err
	}
	if p.GetContainerPort() < 1 || p.GetContainerPort() > 65535 {
		return invalid("container port %d is not between 1 and 65535", p.GetContainerPort())
	}
	if p.GetHostPort() < 0 || p.GetHostPort() > 65535 {
		return invalid("host port %d is not between 0 and 65535", p.GetHostPort())
	}
	if ip := p.GetHostIp(); ip != "" {
		if _, err := netip.ParseAddr(ip); err != nil {
			return invalid("host address %q of port %d is not an IP address", ip, p.GetContainerPort())
		}
	}
	return nil
}

func validateNamespaces(o *runtimeapi.NamespaceOption) error {
	if err := convert.CheckUserNamespace(o.GetUsernsOptions()); err != nil {
		return err
	}
	const pod, node = runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE
	for _, ns := range []struct {
		name     string
		mode     runtimeapi.NamespaceMode
		possible []runtimeapi.NamespaceMode
	}{
		{"network", o.GetNetwork(), []runtimeapi.NamespaceMode{pod, node}},
		{"ipc", o.GetIpc(), []runtimeapi.NamespaceMode{pod, node}},
		{"pid", o.GetPid(), []runtimeapi.NamespaceMode{pod, node, runtimeapi.NamespaceMode_CONTAINER}},
	} {
		if !slices.Contains(ns.possible, ns.mode) {
			return invalid("%s namespace mode %s is not possible for a pod sandbox", ns.name, ns.mode)
		}
	}
	return nil
}

func protocol(p runtimeapi.Protocol) (string, error) {
	switch p {
	case runtimeapi.Protocol_TCP:
		return "tcp", nil
	case runtimeapi.Protocol_UDP:
		return "udp", nil
	case runtimeapi.Protocol_SCTP:
		return "sctp", nil
	}
	return "", invalid("unknown protocol %d of a port mapping", p)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrInvalidArgument)...)
}

func (s *Service) gather(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (facts, error) {
	c := r.GetConfig()
	f := facts{
		network:  s.Networks.ForNew(ctx, namespaces(c).GetNetwork() == runtimeapi.NamespaceMode_NODE),
		created:  time.Now(),
		oomScore: s.OOM.Allowed(sandboxOOM),
	}
	limits := c.GetAnnotations()[kube.AnnotationIngress] + c.GetAnnotations()[kube.AnnotationEgress]
	if f.network.Name() == podnetwork.NameBridge && limits != "" {
		s.unlimited.Do(func() {
			s.Log.Warn("the engine's bridge does not limit bandwidth, the annotations of pods have no effect", "pod", c.GetMetadata().GetName())
		})
	}
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return f, fmt.Errorf("ask the docker engine about itself: %w", err)
	}
	f.cgroupDriver, f.security = info.CgroupDriver, info.SecurityOptions
	if f.handler, err = convert.RuntimeHandler(r.GetRuntimeHandler(), info); err != nil {
		return f, err
	}
	profile, err := seccompProfile(c.GetLinux().GetSecurityContext())
	if err != nil {
		return f, err
	}
	if profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		if f.seccomp, err = bounded.ReadRegular(profile.GetLocalhostRef(), convert.MaxSeccomp); err != nil {
			return f, invalid("seccomp profile: %v", err)
		}
	}
	f.image, err = pause.Ensure(ctx, s.Engine, s.PauseImage, info.Architecture)
	return f, err
}

// run removes the sandbox and its network if a step fails, even if ctx was cancelled.
func (s *Service) run(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, f facts) (_ string, err error) {
	id, err := s.start(ctx, r, f)
	if err != nil {
		return "", err
	}
	undo := []func(context.Context) error{func(ctx context.Context) error { return lifecycle.Remove(ctx, s.Engine, id) }}
	defer func() {
		if err == nil {
			return
		}
		cleanup, cancel := lifecycle.CleanupContext(ctx)
		defer cancel()
		for _, step := range slices.Backward(undo) {
			err = errors.Join(err, step(cleanup))
		}
	}()
	b, err := state.FindSandbox(ctx, s.Engine, id)
	if err != nil {
		return "", fmt.Errorf("inspect the new sandbox: %w", err)
	}
	pod, done := networkPod(b)
	undo = append(undo, func(ctx context.Context) error {
		defer done()
		return f.network.TearDown(ctx, pod)
	})
	if err := f.network.SetUp(ctx, pod); err != nil {
		return "", fmt.Errorf("set up the network: %w", err)
	}
	done()
	return id, nil
}

// start retries with a higher oom score if the host forbids the requested one.
func (s *Service) start(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, f facts) (string, error) {
	id, err := s.startOnce(ctx, r, f)
	if err == nil || !s.OOM.Refused(f.oomScore, err) {
		return id, err
	}
	f.oomScore = s.OOM.Allowed(f.oomScore)
	return s.startOnce(ctx, r, f)
}

// startOnce leaves no container behind on an error. A container with the same identity that was never started is left
// over from an earlier request and is replaced.
func (s *Service) startOnce(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, f facts) (string, error) {
	p, err := plan(r, f)
	if err != nil {
		return "", err
	}
	created, err := lifecycle.Create(ctx, s.Engine, p, func(holder container.InspectResponse) lifecycle.Holder {
		have, ok := state.DecodeSandbox(holder.Name, holder.Config.Labels)
		switch {
		case !ok || !proto.Equal(have.Metadata, r.GetConfig().GetMetadata()):
			return lifecycle.Foreign
		case holder.State.Status == container.StateCreated:
			return lifecycle.Stale
		}
		return lifecycle.InUse
	})
	if err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	for _, warning := range created.Warnings {
		s.Log.Info("the engine warns about a sandbox", "id", created.ID, "warning", warning)
	}
	s.pending.add(p.Name, created.ID)
	err = s.Engine.ContainerStart(ctx, created.ID, container.StartOptions{})
	if err == nil {
		return created.ID, nil
	}
	cleanup, cancel := lifecycle.CleanupContext(ctx)
	defer cancel()
	return "", errors.Join(fmt.Errorf("start the sandbox: %w", err), lifecycle.Remove(cleanup, s.Engine, created.ID))
}

// pending has the sandboxes of requests in flight. Lists omit them, because a cancelled request removes its sandbox,
// and a kubelet that has seen the sandbox would wait for it.
type pending struct {
	mu  sync.Mutex
	ids map[string][]string // containers that the request has created, by sandbox name
}

func (p *pending) begin(name string) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ids == nil {
		p.ids = map[string][]string{}
	}
	p.ids[name] = nil
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.ids, name)
	}
}

func (p *pending) add(name, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids[name] = append(p.ids[name], id)
}

// has reports whether a request in flight is creating the sandbox. Any sandbox of the same name that has never run also
// matches, because the request may not know its id yet.
func (p *pending) has(item *runtimeapi.PodSandbox, c container.Summary) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids, busy := p.ids[state.SandboxName(item.GetMetadata())]
	return busy && (c.State == container.StateCreated || slices.Contains(ids, item.GetId()))
}
