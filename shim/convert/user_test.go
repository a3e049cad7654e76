package convert

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	testPasswd = "root:x:0:0:root:/root:/bin/sh\n\n# odd line\nalice:x:1000:1001::/:/bin/sh\nbad:x:abc:1\n"
	testGroup  = "root:x:0:\nalice:x:1001:\nextra:x:50:bob,alice\nwheel:x:51:root\nbroken\n"
)

func TestRequestedUserToEngine(t *testing.T) {
	t.Parallel()
	n := func(v int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: v} }
	const strict = runtimeapi.SupplementalGroupsPolicy_Strict
	for name, tc := range map[string]struct {
		sc    *runtimeapi.LinuxContainerSecurityContext
		image string
		user  string
		add   []string
	}{
		"nothing":                  {nil, "", "", nil},
		"the image's user":         {nil, "alice", "alice", nil},
		"the image's user, group":  {nil, "alice:alice", "1000:alice", []string{"50"}},
		"uid":                      {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: n(7)}, "alice:extra", "7", nil},
		"name":                     {&runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "alice"}, "", "alice", nil},
		"merge with a group":       {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: n(1000), RunAsGroup: n(9), SupplementalGroups: []int64{4, 50}}, "", "1000:9", []string{"50", "4"}},
		"strict":                   {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: n(1000), SupplementalGroupsPolicy: strict, SupplementalGroups: []int64{4}}, "", "1000:1001", []string{"4"}},
		"strict with a group":      {&runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "alice", RunAsGroup: n(9), SupplementalGroupsPolicy: strict}, "", "alice:9", nil},
		"strict, the image's user": {&runtimeapi.LinuxContainerSecurityContext{SupplementalGroupsPolicy: strict}, "alice", "1000:1001", nil},
		"strict root":              {&runtimeapi.LinuxContainerSecurityContext{SupplementalGroupsPolicy: strict}, "", "0:0", nil},
	} {
		w, err := RequestedUser(tc.sc, tc.image)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		user, add, err := w.Engine([]byte(testPasswd), []byte(testGroup))
		if err != nil || user != tc.user || !cmp.Equal(add, tc.add) {
			t.Errorf("%s: got %q %q, %v; want %q %q", name, user, add, err, tc.user, tc.add)
		}
	}
}

func TestRequestedUserRefused(t *testing.T) {
	t.Parallel()
	n := func(v int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: v} }
	for name, sc := range map[string]*runtimeapi.LinuxContainerSecurityContext{
		"group without user": {RunAsGroup: n(1)},
		"uid and name":       {RunAsUser: n(1), RunAsUsername: "a"},
		"negative uid":       {RunAsUser: n(-1)},
		"huge uid":           {RunAsUser: n(1 << 40)},
		"negative group":     {SupplementalGroups: []int64{-1}},
		"unknown policy":     {SupplementalGroupsPolicy: 5},
	} {
		if _, err := RequestedUser(sc, ""); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestContainerUser(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		spec string
		add  []string
		want string
	}{
		{"", nil, "0 0 [0 51]"},
		{"0", nil, "0 0 [0 51]"},
		{"5", nil, "5 0 [0]"},
		{"1000", []string{"extra", "7"}, "1000 1001 [7 50 1001]"},
		{"alice", nil, "1000 1001 [50 1001]"},
		{"alice:extra", nil, "1000 50 [50]"},
		{"1000:9", nil, "1000 9 [9]"},
	} {
		u, err := ContainerUser(tc.spec, tc.add, []byte(testPasswd), []byte(testGroup))
		if err != nil {
			t.Errorf("%s: %v", tc.spec, err)
			continue
		}
		if got := fmt.Sprint(u.Linux.Uid, u.Linux.Gid, u.Linux.SupplementalGroups); got != tc.want {
			t.Errorf("%q with %q: got %s, want %s", tc.spec, tc.add, got, tc.want)
		}
	}
	for _, spec := range []string{"carol", "alice:none"} {
		if _, err := ContainerUser(spec, nil, []byte(testPasswd), []byte(testGroup)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v", spec, err)
		}
	}
	if _, err := ContainerUser("0", []string{"none"}, nil, nil); !errdefs.IsNotFound(err) {
		t.Errorf("unknown group: got %v", err)
	}
}

func FuzzResolveUser(f *testing.F) {
	f.Add("alice:extra", testPasswd, testGroup)
	f.Add("", "", "")
	f.Add(":", ":::", "::")
	f.Fuzz(func(t *testing.T, spec, passwd, group string) {
		_, _ = resolveUser(spec, []byte(passwd), []byte(group))
	})
}
