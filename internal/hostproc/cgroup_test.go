package hostproc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	idA = strings.Repeat("0123456789abcdef", 4)
	idB = strings.Repeat("fedcba9876543210", 4)
)

const uid = "8f3c7a52-1b0e-4c6f-9d2a-0a1b2c3d4e5f"

// TestParseGroup parses lines from kernels and runtimes. A and B are ids, UID and U_ID are forms of a pod's uid.
func TestParseGroup(t *testing.T) {
	t.Parallel()
	a, pod := []string{idA}, uid
	cases := map[string]struct {
		text string
		want Group
	}{
		"nothing":                       {"", Group{}},
		"no line of a cgroup file":      {"what\n", Group{}},
		"the root of v2":                {"0::/\n", Group{}},
		"docker, v1, cgroupfs":          {"9:name=systemd:/docker/A\n8:pids:/docker/A\n4:memory:/docker/A\n0::/\n", Group{IDs: a}},
		"docker, v2, cgroupfs":          {"0::/docker/A\n", Group{IDs: a}},
		"docker, v2, systemd":           {"0::/system.slice/docker-A.scope\n", Group{IDs: a}},
		"docker, hybrid":                {"12:devices:/docker/A\n1:name=systemd:/docker/A\n0::/system.slice/containerd.service\n", Group{IDs: a}},
		"containerd, v1, cgroupfs":      {"11:cpu,cpuacct:/kubepods/burstable/podUID/A\n1:name=systemd:/kubepods/burstable/podUID/A\n", Group{IDs: a, PodUID: pod}},
		"containerd, guaranteed":        {"0::/kubepods/podUID/A\n", Group{IDs: a, PodUID: pod}},
		"containerd, v2, systemd":       {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podU_ID.slice/cri-containerd-A.scope\n", Group{IDs: a, PodUID: pod}},
		"containerd, guaranteed, v2":    {"0::/kubepods.slice/kubepods-podU_ID.slice/cri-containerd-A.scope\n", Group{IDs: a, PodUID: pod}},
		"containerd, triple unexpanded": {"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-podU_ID.slice:cri-containerd:A\n", Group{IDs: a, PodUID: pod, Unit: "containerd.service"}},
		"containerd without a kubelet":  {"0::/k8s.io/A\n", Group{IDs: a}},
		"a static pod":                  {"0::/kubepods/burstable/pod3e1f0a9b8c7d6e5f4a3b2c1d0e9f8a7b/A\n", Group{IDs: a, PodUID: "3e1f0a9b8c7d6e5f4a3b2c1d0e9f8a7b"}},
		"cri-dockerd, systemd":          {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_ID.slice/docker-A.scope\n", Group{IDs: a, PodUID: pod}},
		"CRI-O":                         {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_ID.slice/crio-A.scope\n", Group{IDs: a, PodUID: pod}},
		"CRI-O with crun":               {"0::/kubepods.slice/kubepods-podU_ID.slice/crio-A.scope/container\n", Group{IDs: a, PodUID: pod}},
		"CRI-O, cgroupfs":               {"0::/kubepods/besteffort/podUID/crio-A\n", Group{IDs: a, PodUID: pod}},
		"CRI-O's monitor":               {"0::/kubepods.slice/kubepods-podU_ID.slice/crio-conmon-A.scope\n", Group{IDs: a, PodUID: pod, Monitor: true}},
		"podman":                        {"0::/machine.slice/libpod-A.scope/container\n", Group{IDs: a}},
		"podman of a user":              {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-A.scope/container\n", Group{IDs: a, User: "1000", Unit: "user@1000.service"}},
		"Kata":                          {"0::/kubepods/podUID/kata_A\n", Group{IDs: a, PodUID: pod}},
		"a process of the pod":          {"0::/kubepods/burstable/podUID\n", Group{PodUID: pod}},
		"systemd in a container":        {"0::/system.slice/docker-A.scope/init.scope\n", Group{IDs: a}},
		"a service in a container":      {"0::/docker/A/system.slice/ssh.service\n", Group{IDs: a}},
		"a node of kind":                {"0::/system.slice/docker-A.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU_ID.slice/cri-containerd-B.scope\n", Group{IDs: []string{idA, idB}}},
		"from inside a node of kind":    {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU_ID.slice/cri-containerd-B.scope\n", Group{IDs: []string{idB}, PodUID: pod}},
		"seen from another namespace":   {"0::/../../kubepods/podUID/A\n", Group{IDs: a, PodUID: pod}},
		"a zombie":                      {"0::/docker/A (deleted)\n", Group{Path: "/docker/" + idA, IDs: a}},
		"another's name inside":         {"0::/docker/A/kubepods/podUID/B\n", Group{IDs: []string{idA, idB}}},
		"a service":                     {"0::/system.slice/nginx.service\n", Group{Unit: "nginx.service"}},
		"a service with groups below":   {"0::/system.slice/docker.service/worker\n", Group{Unit: "docker.service"}},
		"a login":                       {"0::/user.slice/user-0.slice/session-3.scope\n", Group{Unit: "session-3.scope"}},
		"a user's service":              {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/foo.service\n", Group{User: "1000", Unit: "foo.service"}},
		"a user's scope named so":       {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-A.scope\n", Group{IDs: a, User: "1000", Unit: "user@1000.service"}},
		"a template's instance":         {"0::/system.slice/system-getty.slice/getty@tty1.service\n", Group{Unit: "getty@tty1.service"}},
		"part of an id":                 {"0::/docker/" + idA[:63] + "\n", Group{}},
		"more than an id":               {"0::/docker/x" + idA + "\n", Group{}},
		"an id in capitals":             {"0::/docker/" + strings.ToUpper(idA) + "\n", Group{}},
		"no pod of a kubelet":           {"0::/podUID/tasks\n", Group{}},
		"no unit":                       {"0::/machine/.scope\n", Group{}},
		"colons in a name":              {"1:name=systemd:/a:b:c/docker/A\n", Group{IDs: a}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.NewReplacer("U_ID", strings.ReplaceAll(uid, "-", "_"), "UID", uid, "/A", "/"+idA, "-A", "-"+idA, "_A", "_"+idA, ":A", ":"+idA,
				"/B", "/"+idB, "-B", "-"+idB).Replace(c.text)
			got := parseGroup(text)
			if c.want.Path == "" {
				got.Path = ""
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", text, diff)
			}
		})
	}
}

// TestSameContainer checks cgroups below a container's own, and a user's cgroup with the name of the container.
func TestSameContainer(t *testing.T) {
	t.Parallel()
	group := func(path string) Group { return parsePath(strings.ReplaceAll(path, "ID", idA)) }
	first := group("/system.slice/docker-ID.scope/init.scope")
	for path, want := range map[string]bool{
		"/system.slice/docker-ID.scope/system.slice/x.service": true, "/system.slice/docker-ID.scope": true,
		"/user.slice/user@1000.service/docker-ID.scope": false, "/docker/ID": false, "/": false,
	} {
		if got := group(path).SameContainer(first, idA); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// FuzzParseGroup checks that all parsed values occur in the line in order.
func FuzzParseGroup(f *testing.F) {
	f.Add("0::/kubepods/pod" + uid + "/" + idA + "/" + idB)
	f.Add("1:name=systemd:/user@7.service/docker-" + idA + ".scope (deleted)")
	f.Fuzz(func(t *testing.T, text string) {
		g := parseGroup(text)
		rest := g.Path
		for _, id := range g.IDs {
			i := strings.Index(rest, id)
			if i < 0 || !hexID.MatchString(id) {
				t.Fatalf("%q: %+v", text, g)
			}
			rest = rest[i+len(id):]
		}
		if !strings.Contains(text, g.Path) || !strings.Contains(g.Path, g.Unit) || len(g.IDs) > 0 && g.upTo(g.IDs[0]) == "" {
			t.Fatalf("%q: %+v", text, g)
		}
	})
}
