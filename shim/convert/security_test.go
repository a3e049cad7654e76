package convert

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	runtimeDefault = runtimeapi.SecurityProfile_RuntimeDefault
	unconfined     = runtimeapi.SecurityProfile_Unconfined
	localhost      = runtimeapi.SecurityProfile_Localhost
)

func profile(kind runtimeapi.SecurityProfile_ProfileType, ref string) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
}

func TestSeccompOption(t *testing.T) {
	t.Parallel()
	const content = "{\n \"defaultAction\": \"SCMP_ACT_ALLOW\"\n}"
	for name, tc := range map[string]struct {
		field *runtimeapi.SecurityProfile
		text  string
		want  string
		bad   bool
	}{
		"nothing is unconfined":         {nil, "", "seccomp=unconfined", false},
		"zero is the runtime's":         {profile(0, ""), "", "", false},
		"unknown kind":                  {profile(9, ""), "", "", true},
		"unconfined":                    {profile(unconfined, ""), "runtime/default", "seccomp=unconfined", false},
		"a file":                        {profile(localhost, "/p.json"), "", `seccomp={"defaultAction":"SCMP_ACT_ALLOW"}`, false},
		"a file with the old prefix":    {profile(localhost, "localhost//p.json"), "", `seccomp={"defaultAction":"SCMP_ACT_ALLOW"}`, false},
		"no file":                       {profile(localhost, ""), "", "", true},
		"a relative file":               {profile(localhost, "p.json"), "", "", true},
		"a file where none belongs":     {profile(runtimeDefault, "/p.json"), "", "", true},
		"old text, default":             {nil, "runtime/default", "", false},
		"old text, docker's default":    {nil, "docker/default", "", false},
		"old text, unconfined":          {nil, "unconfined", "seccomp=unconfined", false},
		"old text, a file":              {nil, "localhost//p.json", `seccomp={"defaultAction":"SCMP_ACT_ALLOW"}`, false},
		"old text, something else":      {nil, "elsewhere/p", "", true},
		"old text, a file with no name": {nil, "localhost/", "", true},
	} {
		p, err := SeccompProfile(tc.field, tc.text)
		if (err != nil) != tc.bad || tc.bad && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: got error %v", name, err)
		}
		if err != nil {
			continue
		}
		got, err := seccompOption(p, []byte(content))
		if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, tc.want)
		}
	}
	if _, err := seccompOption(profile(localhost, "/p"), []byte("no json")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a profile that is no JSON: got %v", err)
	}
}

func TestAppArmorOption(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		field *runtimeapi.SecurityProfile
		text  string
		want  string
		bad   bool
	}{
		"nothing is the runtime's": {nil, "", "", false},
		"the field wins":           {profile(localhost, "new"), "localhost/old", "apparmor=new", false},
		"old text":                 {nil, "localhost/old", "apparmor=old", false},
		"old text, unconfined":     {nil, "unconfined", "apparmor=unconfined", false},
		"unconfined":               {profile(unconfined, ""), "", "apparmor=unconfined", false},
		"old text, default":        {nil, "runtime/default", "", false},
		"old text, something else": {nil, "what", "", true},
		"unknown kind":             {profile(7, ""), "", "", true},
	} {
		p, err := AppArmorProfile(tc.field, tc.text)
		if (err != nil) != tc.bad {
			t.Errorf("%s: got error %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "seccomp") {
			t.Errorf("%s: got error %v about another profile", name, err)
		}
		if err == nil && appArmorOption(p) != tc.want {
			t.Errorf("%s: got %q, want %q", name, appArmorOption(p), tc.want)
		}
	}
}

func TestSELinuxOptions(t *testing.T) {
	t.Parallel()
	if got := SELinuxOptions(nil); got != nil {
		t.Errorf("nil: got %q", got)
	}
	got := SELinuxOptions(&runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0:c1"})
	if diff := cmp.Diff([]string{"label=user:u", "label=role:r", "label=type:t", "label=level:s0:c1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	if add, drop, err := Capabilities(nil, nil); add != nil || drop != nil || err != nil {
		t.Errorf("nil: got %v, %v, %v", add, drop, err)
	}
	add, drop, err := Capabilities(&runtimeapi.Capability{
		AddCapabilities: []string{"cap_chown", "CHOWN", "NET_ADMIN"}, DropCapabilities: []string{"ALL"},
	}, []string{"CHOWN", "KILL"})
	if err != nil || !cmp.Equal(add, []string{"CHOWN", "NET_ADMIN"}) || !cmp.Equal(drop, []string{"ALL"}) {
		t.Errorf("got %q, %q, %v", add, drop, err)
	}
	// "all" expands to the engine's known capabilities. Named capabilities are requested in any case.
	everything := &runtimeapi.Capability{AddCapabilities: []string{"cap_all", "BPF", "KILL"}, DropCapabilities: []string{"CHOWN"}}
	if add, _, err := Capabilities(everything, []string{"CHOWN", "KILL", "SYS_ADMIN"}); err != nil || !cmp.Equal(add, []string{"KILL", "SYS_ADMIN", "BPF"}) {
		t.Errorf("all that there are: got %q, %v", add, err)
	}
	if add, _, err := Capabilities(everything, nil); err != nil || !cmp.Equal(add, []string{"ALL", "BPF", "KILL"}) {
		t.Errorf("all: got %q, %v", add, err)
	}
	if _, _, err := Capabilities(&runtimeapi.Capability{AddAmbientCapabilities: []string{"CHOWN"}}, nil); !errdefs.IsNotImplemented(err) {
		t.Errorf("ambient: got %v, want not implemented", err)
	}
	for _, name := range []string{"", "CAP_", "NET ADMIN", "NET-ADMIN"} {
		if _, _, err := Capabilities(&runtimeapi.Capability{DropCapabilities: []string{name}}, nil); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, want invalid argument", name, err)
		}
	}
}
