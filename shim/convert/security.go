package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Spellings of the deprecated text form of a security profile.
const (
	profileRuntimeDefault  = "runtime/default"
	profileDockerDefault   = "docker/default"
	profileUnconfined      = "unconfined"
	profileLocalhostPrefix = "localhost/"
)

// SeccompProfile decides which seccomp profile applies: the field, else the
// deprecated text. The CRI says that none at all is unconfined.
func SeccompProfile(p *runtimeapi.SecurityProfile, text string) (*runtimeapi.SecurityProfile, error) {
	profile, err := securityProfile(p, text)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	if profile == nil {
		profile = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
	if profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost && !path.IsAbs(profile.GetLocalhostRef()) {
		return nil, fmt.Errorf("seccomp profile %q is not an absolute path: %w", profile.GetLocalhostRef(), errdefs.ErrInvalidArgument)
	}
	return profile, nil
}

// AppArmorProfile decides which AppArmor profile applies: the field wins over
// the deprecated text, and none at all is the runtime's default.
func AppArmorProfile(p *runtimeapi.SecurityProfile, text string) (*runtimeapi.SecurityProfile, error) {
	profile, err := securityProfile(p, text)
	if err != nil {
		return nil, fmt.Errorf("AppArmor profile: %w", err)
	}
	if profile == nil {
		profile = &runtimeapi.SecurityProfile{}
	}
	return profile, nil
}

func securityProfile(p *runtimeapi.SecurityProfile, text string) (*runtimeapi.SecurityProfile, error) {
	if p != nil {
		return checkProfile(p)
	}
	switch {
	case text == "":
		return nil, nil
	case text == profileRuntimeDefault, text == profileDockerDefault:
		return &runtimeapi.SecurityProfile{}, nil
	case text == profileUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case strings.HasPrefix(text, profileLocalhostPrefix):
		return checkProfile(&runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: text,
		})
	default:
		return nil, fmt.Errorf("%q is none of runtime/default, unconfined, localhost/...: %w", text, errdefs.ErrInvalidArgument)
	}
}

// checkProfile also takes the prefix off the reference: kubelets have sent
// "localhost/name" in the new field too.
func checkProfile(p *runtimeapi.SecurityProfile) (*runtimeapi.SecurityProfile, error) {
	ref := strings.TrimPrefix(p.GetLocalhostRef(), profileLocalhostPrefix)
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

// MaxSeccomp is how long a profile may be, in bytes. The engine's own has 16 KiB.
const MaxSeccomp = 4 << 20

// SeccompOption is the engine's security option for a profile; content
// is the profile file of a localhost profile, which travels inline because the
// engine may run elsewhere. No option means the engine's default profile.
func SeccompOption(p *runtimeapi.SecurityProfile, content []byte) (string, error) {
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

// AppArmorOption is the engine's security option for a profile.
func AppArmorOption(p *runtimeapi.SecurityProfile) string {
	switch p.GetProfileType() {
	case runtimeapi.SecurityProfile_Unconfined:
		return "apparmor=unconfined"
	case runtimeapi.SecurityProfile_Localhost:
		return "apparmor=" + p.GetLocalhostRef()
	default:
		return ""
	}
}

// HasSecurity reports whether an engine lists a security option such as apparmor.
func HasSecurity(options []string, name string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return o == "name="+name || strings.HasPrefix(o, "name="+name+",") })
}

// CheckProfiles refuses profiles of the node where the engine's host has nothing
// that could apply them: the engine would go on without.
func CheckProfiles(options []string, seccomp, apparmor *runtimeapi.SecurityProfile) error {
	for _, p := range []struct {
		option, name string
		profile      *runtimeapi.SecurityProfile
	}{{"seccomp", "seccomp", seccomp}, {"apparmor", "AppArmor", apparmor}} {
		if p.profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost && !HasSecurity(options, p.option) {
			return fmt.Errorf("the engine's host has no %s, so profile %s cannot apply: %w", p.name, p.profile.GetLocalhostRef(), errdefs.ErrNotImplemented)
		}
	}
	return nil
}

// SELinuxOptions are the engine's label options. The engine drops them where
// SELinux is off, which is what a pod written for several hosts expects.
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

// all stands for every capability.
const all = "ALL"

// Capabilities are the engine's lists of capabilities to add and to drop.
// The engine spells them as it likes; both spellings are one name here, so
// that a list does not ask for the same capability twice. What the engine can
// give stands for all, where it has not all: it would fail over the others.
func Capabilities(c *runtimeapi.Capability, given []string) (add, drop []string, err error) {
	if len(c.GetAddAmbientCapabilities()) > 0 {
		return nil, nil, fmt.Errorf("the engine cannot set ambient capabilities: %w", errdefs.ErrNotImplemented)
	}
	if add, err = capabilityNames(c.GetAddCapabilities()); err != nil {
		return nil, nil, err
	}
	if drop, err = capabilityNames(c.GetDropCapabilities()); err != nil {
		return nil, nil, err
	}
	if AllCapabilities(add) && len(given) > 0 {
		named := slices.DeleteFunc(add, func(name string) bool { return name == all || slices.Contains(given, name) })
		rest := slices.DeleteFunc(slices.Clone(given), func(name string) bool { return slices.Contains(drop, name) })
		add = append(rest, named...)
	}
	return add, drop, nil
}

// AllCapabilities reports whether a list asks for all, in either spelling.
func AllCapabilities(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return shortName(name) == all })
}

func shortName(name string) string { return strings.TrimPrefix(strings.ToUpper(name), "CAP_") }

func capabilityNames(names []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		short := shortName(name)
		if short == "" || strings.Trim(short, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
			return nil, fmt.Errorf("capability %q is no name of one: %w", name, errdefs.ErrInvalidArgument)
		}
		if !seen[short] {
			seen[short] = true
			out = append(out, short)
		}
	}
	return out, nil
}
