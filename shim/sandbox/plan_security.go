package sandbox

import (
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

// planSecurity confines the pause process. It never runs privileged: the field
// only announces that a container of the pod will be, and the engine lets such
// a container join an unprivileged sandbox.
func planSecurity(s *spec, sc *runtimeapi.LinuxSandboxSecurityContext, f facts) error {
	s.host.SecurityOpt = append(s.host.SecurityOpt, "no-new-privileges")
	s.host.SecurityOpt = append(s.host.SecurityOpt, convert.SELinuxOptions(sc.GetSelinuxOptions())...)
	s.host.ReadonlyRootfs = sc.GetReadonlyRootfs()
	s.config.User = user(sc)
	for _, g := range sc.GetSupplementalGroups() {
		s.host.GroupAdd = append(s.host.GroupAdd, strconv.FormatInt(g, 10))
	}
	profile, err := seccompProfile(sc)
	if err != nil {
		return err
	}
	option, err := convert.SeccompOption(profile, f.seccomp)
	if err != nil {
		return err
	}
	apparmor, err := convert.AppArmorProfile(sc.GetApparmor(), "")
	if err != nil {
		return err
	}
	if err := convert.CheckProfiles(f.security, profile, apparmor); err != nil {
		return err
	}
	for _, o := range []string{option, convert.AppArmorOption(apparmor)} {
		if o != "" {
			s.host.SecurityOpt = append(s.host.SecurityOpt, o)
		}
	}
	return nil
}

// seccompProfile settles the sandbox's profile. Where none is named the pause
// process gets the engine's default, which it can live with; containers decide
// for themselves.
func seccompProfile(sc *runtimeapi.LinuxSandboxSecurityContext) (*runtimeapi.SecurityProfile, error) {
	text := sc.GetSeccompProfilePath() //nolint:staticcheck // kubelets before 1.25 send nothing else
	if sc.GetSeccomp() == nil && text == "" {
		return &runtimeapi.SecurityProfile{}, nil
	}
	return convert.SeccompProfile(sc.GetSeccomp(), text)
}

func user(sc *runtimeapi.LinuxSandboxSecurityContext) string {
	if sc.GetRunAsUser() == nil {
		return ""
	}
	user := strconv.FormatInt(sc.GetRunAsUser().GetValue(), 10)
	if sc.GetRunAsGroup() != nil {
		user += ":" + strconv.FormatInt(sc.GetRunAsGroup().GetValue(), 10)
	}
	return user
}
