package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SeccompProfile prefers the field to the deprecated text. CRI defines unconfined as the default.
func SeccompProfile(p *runtimeapi.SecurityProfile, text string) (*runtimeapi.SecurityProfile, error) {
	profile, err := securityProfile(p, text, runtimeapi.SecurityProfile_Unconfined)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	if profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost && !path.IsAbs(profile.GetLocalhostRef()) {
		return nil, fmt.Errorf("seccomp profile %q is not an absolute path: %w", profile.GetLocalhostRef(), errdefs.ErrInvalidArgument)
	}
	return profile, nil
}

// AppArmorProfile prefers the field to the deprecated text. The default is the runtime's profile.
func AppArmorProfile(p *runtimeapi.SecurityProfile, text string) (*runtimeapi.SecurityProfile, error) {
	profile, err := securityProfile(p, text, runtimeapi.SecurityProfile_RuntimeDefault)
	if err != nil {
		return nil, fmt.Errorf("AppArmor profile: %w", err)
	}
	return profile, nil
}

// securityProfile removes the prefix "localhost/", because some kubelets send it not only in the deprecated text but also
// in the field.
func securityProfile(p *runtimeapi.SecurityProfile, text string, unset runtimeapi.SecurityProfile_ProfileType) (*runtimeapi.SecurityProfile, error) {
	const prefix = "localhost/"
	if p == nil {
		p = &runtimeapi.SecurityProfile{}
		switch {
		case text == "":
			p.ProfileType = unset
		case text == "runtime/default", text == "docker/default":
		case text == "unconfined":
			p.ProfileType = runtimeapi.SecurityProfile_Unconfined
		case strings.HasPrefix(text, prefix):
			p.ProfileType, p.LocalhostRef = runtimeapi.SecurityProfile_Localhost, text
		default:
			return nil, fmt.Errorf("invalid value %q: must be runtime/default, unconfined or localhost/...: %w", text, errdefs.ErrInvalidArgument)
		}
	}
	ref := strings.TrimPrefix(p.GetLocalhostRef(), prefix)
	switch p.GetProfileType() {
	case runtimeapi.SecurityProfile_RuntimeDefault, runtimeapi.SecurityProfile_Unconfined:
		if ref != "" {
			return nil, fmt.Errorf("localhost_ref %q is for Localhost only: %w", ref, errdefs.ErrInvalidArgument)
		}
	case runtimeapi.SecurityProfile_Localhost:
		if ref == "" {
			return nil, fmt.Errorf("localhost_ref is empty: %w", errdefs.ErrInvalidArgument)
		}
	default:
		return nil, fmt.Errorf("unknown type %d: %w", p.GetProfileType(), errdefs.ErrInvalidArgument)
	}
	return &runtimeapi.SecurityProfile{ProfileType: p.GetProfileType(), LocalhostRef: ref}, nil
}

// MaxSeccomp is the maximum size of a profile in bytes. The engine's default profile has 16 KiB.
const MaxSeccomp = 4 << 20

// ProfileOptions returns the engine's security options for both profiles. It rejects a profile that the engine does not
// support, because the engine would silently ignore it.
func ProfileOptions(engine []string, seccomp *runtimeapi.SecurityProfile, content []byte, apparmor *runtimeapi.SecurityProfile) ([]string, error) {
	for _, p := range []struct {
		option, name string
		profile      *runtimeapi.SecurityProfile
	}{{"seccomp", "seccomp", seccomp}, {"apparmor", "AppArmor", apparmor}} {
		if p.profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost && !HasSecurity(engine, p.option) {
			return nil, fmt.Errorf("the engine's host has no %s, so profile %s cannot apply: %w", p.name, p.profile.GetLocalhostRef(), errdefs.ErrNotImplemented)
		}
	}
	option, err := seccompOption(seccomp, content)
	return slices.DeleteFunc([]string{option, appArmorOption(apparmor)}, func(o string) bool { return o == "" }), err
}

// seccompOption returns an option with the content of a localhost profile, because the engine may run on another host. It
// returns "" for the engine's default profile.
func seccompOption(p *runtimeapi.SecurityProfile, content []byte) (string, error) {
	switch p.GetProfileType() {
	case runtimeapi.SecurityProfile_RuntimeDefault:
		return "", nil
	case runtimeapi.SecurityProfile_Unconfined:
		return "seccomp=unconfined", nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, content); err != nil {
		return "", fmt.Errorf("seccomp profile %s: %w: %w", p.GetLocalhostRef(), err, errdefs.ErrInvalidArgument)
	}
	return "seccomp=" + compact.String(), nil
}

func appArmorOption(p *runtimeapi.SecurityProfile) string {
	switch p.GetProfileType() {
	case runtimeapi.SecurityProfile_Unconfined:
		return "apparmor=unconfined"
	case runtimeapi.SecurityProfile_Localhost:
		return "apparmor=" + p.GetLocalhostRef()
	}
	return ""
}

func HasSecurity(options []string, name string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return o == "name="+name || strings.HasPrefix(o, "name="+name+",") })
}

// SELinuxOptions returns label options. An engine without SELinux ignores them.
func SELinuxOptions(o *runtimeapi.SELinuxOption) []string {
	var out []string
	for _, part := range []struct{ name, value string }{
		{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}, {"level", o.GetLevel()},
	} {
		if part.value != "" {
			out = append(out, "label="+part.name+":"+part.value)
		}
	}
	return out
}

const allCapabilities = "ALL"

// Capabilities returns the capabilities to add and drop without duplicates. Unless known is empty, ALL in the
// capabilities to add is replaced by known without the dropped capabilities.
func Capabilities(c *runtimeapi.Capability, known []string) (add, drop []string, err error) {
	if len(c.GetAddAmbientCapabilities()) > 0 {
		return nil, nil, fmt.Errorf("the engine cannot set ambient capabilities: %w", errdefs.ErrNotImplemented)
	}
	if add, err = capabilityNames(c.GetAddCapabilities()); err != nil {
		return nil, nil, err
	}
	if drop, err = capabilityNames(c.GetDropCapabilities()); err != nil {
		return nil, nil, err
	}
	if AllCapabilities(add) && len(known) > 0 {
		named := slices.DeleteFunc(add, func(name string) bool { return name == allCapabilities || slices.Contains(known, name) })
		rest := slices.DeleteFunc(slices.Clone(known), func(name string) bool { return slices.Contains(drop, name) })
		add = append(rest, named...)
	}
	return add, drop, nil
}

func AllCapabilities(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return shortName(name) == allCapabilities })
}

func shortName(name string) string { return strings.TrimPrefix(strings.ToUpper(name), "CAP_") }

func capabilityNames(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		short := shortName(name)
		if short == "" || strings.Trim(short, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
			return nil, fmt.Errorf("invalid capability %q: must be a name such as NET_ADMIN: %w", name, errdefs.ErrInvalidArgument)
		}
		if !slices.Contains(out, short) {
			out = append(out, short)
		}
	}
	return out, nil
}

type Pod struct {
	ID         string
	Namespaces *runtimeapi.NamespaceOption
}

func CheckUserNamespace(u *runtimeapi.UserNamespace) error {
	if u != nil && (u.GetMode() != runtimeapi.NamespaceMode_NODE || len(u.GetUids())+len(u.GetGids()) > 0) {
		return fmt.Errorf("the engine has no user namespace per pod: %w", errdefs.ErrNotImplemented)
	}
	return nil
}

// Namespaces sets the namespaces of a container: the sandbox's, the node's or its own. target is the container whose PID
// namespace is joined in mode TARGET.
func Namespaces(hc *container.HostConfig, o *runtimeapi.NamespaceOption, pod Pod, target string) error {
	if err := CheckUserNamespace(o.GetUsernsOptions()); err != nil {
		return err
	}
	refuse := func(kind string, mode runtimeapi.NamespaceMode) error {
		return fmt.Errorf("%s namespace mode %s is not possible for a container: %w", kind, mode, errdefs.ErrInvalidArgument)
	}
	join := "container:" + pod.ID
	hc.NetworkMode, hc.IpcMode, hc.PidMode = container.NetworkMode(join), container.IpcMode(join), container.PidMode(join)
	switch o.GetNetwork() {
	case runtimeapi.NamespaceMode_POD:
	case runtimeapi.NamespaceMode_NODE:
		hc.UTSMode = "host"
		if pod.Namespaces.GetNetwork() != runtimeapi.NamespaceMode_NODE {
			hc.NetworkMode = "host"
		}
	default:
		return refuse("network", o.GetNetwork())
	}
	switch o.GetIpc() {
	case runtimeapi.NamespaceMode_POD:
		// The engine lets no container join the IPC namespace of a container that uses the node's.
		if pod.Namespaces.GetIpc() == runtimeapi.NamespaceMode_NODE {
			hc.IpcMode = "host"
		}
	case runtimeapi.NamespaceMode_NODE:
		hc.IpcMode = "host"
	case runtimeapi.NamespaceMode_CONTAINER:
		hc.IpcMode = "private"
	default:
		return refuse("ipc", o.GetIpc())
	}
	switch o.GetPid() {
	case runtimeapi.NamespaceMode_POD:
	case runtimeapi.NamespaceMode_CONTAINER:
		hc.PidMode = ""
	case runtimeapi.NamespaceMode_NODE:
		hc.PidMode = "host"
	case runtimeapi.NamespaceMode_TARGET:
		if target == "" {
			return fmt.Errorf("pid namespace TARGET needs a target_id: %w", errdefs.ErrInvalidArgument)
		}
		hc.PidMode = container.PidMode("container:" + target)
	default:
		return refuse("pid", o.GetPid())
	}
	return nil
}

// RuntimeHandler returns the engine's OCI runtime, or "" for its default, which dockershim called "docker".
func RuntimeHandler(name string, info system.Info) (string, error) {
	if _, known := info.Runtimes[name]; known {
		return name, nil
	}
	if name == "" || name == "docker" {
		return "", nil
	}
	return "", fmt.Errorf("the engine has no runtime for handler %q: %w", name, errdefs.ErrInvalidArgument)
}
