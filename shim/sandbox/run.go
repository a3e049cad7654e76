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
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/pause"
	"github.com/crishim/crishim/shim/state"
)

// RunPodSandbox makes and starts a sandbox and connects it. When it fails there
// is nothing left of it.
func (s *Service) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	if err := validate(r.GetConfig()); err != nil {
		return nil, err
	}
	name := r.GetConfig().GetMetadata().GetName()
	unlock, err := s.creating.Lock(ctx, state.SandboxName(r.GetConfig().GetMetadata()))
	if err != nil {
		return nil, fmt.Errorf("wait for another request about pod %s: %w", name, err)
	}
	defer unlock()
	defer s.pending.begin(state.SandboxName(r.GetConfig().GetMetadata()))()
	f, err := s.gather(ctx, r)
	if err != nil {
		return nil, err
	}
	id, err := s.run(ctx, r, f)
	if err != nil {
		return nil, fmt.Errorf("run pod sandbox %s: %w", name, err)
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// gather asks for what the plan needs.
func (s *Service) gather(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (facts, error) {
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
	profile, err := seccompProfile(c.GetLinux().GetSecurityContext())
	if err != nil {
		return f, err
	}
	if profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		// Its path is one of the node's, and the engine takes the content.
		if f.seccomp, err = bounded.ReadRegular(profile.GetLocalhostRef(), convert.MaxSeccomp); err != nil {
			return f, invalid("seccomp profile: %v", err)
		}
	}
	f.image, err = pause.Ensure(ctx, s.engine, s.pauseImage)
	return f, err
}

// run makes the sandbox and takes everything back when a step fails, on a context of its
// own: the request's may be the reason.
func (s *Service) run(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, f facts) (_ string, err error) {
	id, err := s.start(ctx, r, f)
	if err != nil {
		return "", err
	}
	undo := []func(context.Context) error{func(ctx context.Context) error { return lifecycle.Remove(ctx, s.engine, id) }}
	defer func() {
		if err == nil {
			return
		}
		patient, cancel := lifecycle.CleanupContext(ctx)
		defer cancel()
		for _, back := range slices.Backward(undo) {
			err = errors.Join(err, back(patient))
		}
	}()
	b, err := state.FindSandbox(ctx, s.engine, id)
	if err != nil {
		return "", fmt.Errorf("look at the new sandbox: %w", err)
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

// start makes the engine container and starts it, a second time with a milder oom score
// where the host turns out to forbid the first one. A container of the same identity that
// was never started is what an earlier request has left; one that has lived is for the
// caller to remove.
func (s *Service) start(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, f facts) (string, error) {
	p, err := plan(r, f)
	if err != nil {
		return "", err
	}
	made, err := lifecycle.Create(ctx, s.engine, p, func(holder container.InspectResponse) lifecycle.Holder {
		have, ok := state.DecodeSandbox(holder.Name, holder.Config.Labels)
		switch {
		case !ok || !proto.Equal(have.Metadata, r.GetConfig().GetMetadata()):
			return lifecycle.Stranger
		case holder.State.Status == container.StateCreated:
			return lifecycle.Abandoned
		}
		return lifecycle.Taken
	})
	if err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	for _, warning := range made.Warnings {
		s.log.Info("the engine warns about a sandbox", "id", made.ID, "warning", warning)
	}
	s.pending.made(p.Name, made.ID)
	err = s.engine.ContainerStart(ctx, made.ID, container.StartOptions{})
	if err == nil {
		return made.ID, nil
	}
	refused := s.oom.Refused(f.oomScore, err)
	patient, cancel := lifecycle.CleanupContext(ctx)
	defer cancel()
	err = errors.Join(fmt.Errorf("start the sandbox: %w", err), lifecycle.Remove(patient, s.engine, made.ID))
	if !refused {
		return "", err
	}
	f.oomScore = s.oom.Allowed(f.oomScore)
	return s.start(ctx, r, f)
}

// pending knows the sandboxes that are not finished. They are in no list: a
// request that is cut off takes its sandbox away again, and a kubelet that has
// seen it would wait for it. The zero value is ready to use.
type pending struct {
	mu  sync.Mutex
	ids map[string][]string // what a request has made so far, by the sandbox's name
}

// begin notes a request and returns what ends it. There is one for a
// name at a time.
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

func (p *pending) made(name, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids[name] = append(p.ids[name], id)
}

// has reports whether a sandbox is not finished. Before the engine has told its id
// it is known by its name, and by never having run: another one of that name
// stays where it is.
func (p *pending) has(item *runtimeapi.PodSandbox, c container.Summary) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids, busy := p.ids[state.SandboxName(item.GetMetadata())]
	return busy && (c.State == container.StateCreated || slices.Contains(ids, item.GetId()))
}

// validate refuses what can be seen to be wrong without asking the engine.
func validate(c *runtimeapi.PodSandboxConfig) error {
	switch {
	case c == nil:
		return invalid("the pod sandbox config is missing")
	case c.GetMetadata() == nil:
		return invalid("the pod sandbox config has no metadata")
	case c.GetMetadata().GetName() == "":
		return invalid("the pod sandbox's metadata has no name")
	case len(c.GetMetadata().GetName()) > maxName:
		return invalid("the pod's name has %d bytes, more than %d", len(c.GetMetadata().GetName()), maxName)
	case len(c.GetMetadata().GetNamespace()) > maxName:
		return invalid("the pod's namespace has %d bytes, more than %d", len(c.GetMetadata().GetNamespace()), maxName)
	case len(c.GetMetadata().GetUid()) > maxName:
		return invalid("the pod's uid has %d bytes, more than %d", len(c.GetMetadata().GetUid()), maxName)
	case len(c.GetHostname()) > 63:
		return invalid("host name %q is longer than 63 characters", c.GetHostname())
	case strings.ContainsFunc(c.GetHostname(), notInHostname):
		return invalid("host name %q holds what is no letter, digit, '-', '_' or '.'", c.GetHostname())
	case c.GetLogDirectory() != "" && !filepath.IsAbs(c.GetLogDirectory()):
		return invalid("log directory %q is not absolute", c.GetLogDirectory())
	case c.GetWindows() != nil:
		return invalid("the pod sandbox config is for Windows, the engine runs Linux containers")
	}
	if err := validateDNS(c.GetDnsConfig()); err != nil {
		return err
	}
	for _, p := range c.GetPortMappings() {
		if err := validatePort(p); err != nil {
			return err
		}
	}
	return validateSecurity(c.GetLinux().GetSecurityContext())
}

// maxName bounds names and ids, of which Kubernetes knows none that is longer.
const maxName = 253

// notInHostname: the engine writes the name into the pod's hosts file, a line
// each, with names separated by spaces.
func notInHostname(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// validateDNS refuses what would add lines of its own to resolv.conf. What
// makes a good server or domain is left to the resolver.
func validateDNS(c *runtimeapi.DNSConfig) error {
	for what, values := range map[string][]string{
		"DNS server": c.GetServers(), "DNS search domain": c.GetSearches(), "DNS option": c.GetOptions(),
	} {
		for _, v := range values {
			if strings.ContainsFunc(v, unicode.IsControl) {
				return invalid("%s %q holds a control character", what, v)
			}
		}
	}
	return nil
}

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
			return invalid("host address %q of port %d is no IP address", ip, p.GetContainerPort())
		}
	}
	return nil
}

func validateSecurity(sc *runtimeapi.LinuxSandboxSecurityContext) error {
	// What makes a good user is the same for a pause process and for a container.
	if _, err := convert.Wish(&runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: sc.GetRunAsUser(), RunAsGroup: sc.GetRunAsGroup(),
		SupplementalGroups: sc.GetSupplementalGroups(), SupplementalGroupsPolicy: sc.GetSupplementalGroupsPolicy(),
	}, ""); err != nil {
		return err
	}
	return validateNamespaces(sc.GetNamespaceOptions())
}

func validateNamespaces(o *runtimeapi.NamespaceOption) error {
	if u := o.GetUsernsOptions(); u != nil && (u.GetMode() != runtimeapi.NamespaceMode_NODE || len(u.GetUids())+len(u.GetGids()) > 0) {
		return fmt.Errorf("the engine has no user namespace per pod: %w", errdefs.ErrNotImplemented)
	}
	for _, ns := range []struct {
		name string
		mode runtimeapi.NamespaceMode
	}{{"network", o.GetNetwork()}, {"ipc", o.GetIpc()}} {
		switch ns.mode {
		case runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE:
		default:
			return invalid("%s namespace mode %s is not possible for a pod sandbox", ns.name, ns.mode)
		}
	}
	switch o.GetPid() {
	case runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_NODE:
		return nil
	}
	return invalid("pid namespace mode %s is not possible for a pod sandbox", o.GetPid())
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
