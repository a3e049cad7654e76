package criconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestQoSAndOOMScore(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	cases := []struct {
		resources string
		qos       v1.PodQOSClass
		score     int64
	}{
		{"{}", v1.PodQOSBestEffort, 1000},
		{"{limits: {cpu: 1, memory: 1Mi}}", v1.PodQOSGuaranteed, -997},
		{"{limits: {memory: 1Mi}}", v1.PodQOSBurstable, 999},
		{"{requests: {memory: 512Mi}}", v1.PodQOSBurstable, 500},
		{"{requests: {memory: 4Gi}}", v1.PodQOSBurstable, 3},
		{"{requests: {cpu: 1}}", v1.PodQOSBurstable, 999},
	}
	for _, c := range cases {
		p, _ := parse(t, "  containers: [{name: main, image: busybox, resources: "+c.resources+"}]")
		if got := QoS(p); got != c.qos {
			t.Errorf("%s: got %s, want %s", c.resources, got, c.qos)
		}
		if got := oomScore(p, &p.Spec.Containers[0], gib); got != c.score {
			t.Errorf("%s: got score %d, want %d", c.resources, got, c.score)
		}
	}
}

// TestOOMScoreBesideOthers: other containers of the pod affect the score of a sidecar. Ephemeral containers do not
// affect the QoS class.
func TestOOMScoreBesideOthers(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	p, _ := parse(t, `
  initContainers: [{name: side, image: busybox, restartPolicy: Always}, {name: init, image: busybox}]
  containers: [{name: a, image: busybox, resources: {requests: {memory: 512Mi}}}, {name: b, image: busybox, resources: {requests: {memory: 256Mi}}}]`)
	for i, want := range []int64{750, 999} {
		if got := oomScore(p, &p.Spec.InitContainers[i], gib); got != want {
			t.Errorf("%s: got %d, want %d", p.Spec.InitContainers[i].Name, got, want)
		}
	}
	p, _ = parse(t, `
  containers: [{name: main, image: busybox, resources: {limits: {cpu: 1, memory: 1Mi}}}]
  ephemeralContainers: [{name: debug, image: busybox}]`)
	if got := QoS(p); got != v1.PodQOSGuaranteed {
		t.Errorf("with an ephemeral container: got %s", got)
	}
}

func TestVerifyNonRoot(t *testing.T) {
	t.Parallel()
	zero, user := int64(0), int64(5)
	yes := true
	cases := []struct {
		name  string
		run   *int64
		image ImageUser
		want  string
	}{
		{"user in the manifest", &user, ImageUser{UID: &zero}, ""},
		{"root in the manifest", &zero, ImageUser{UID: &user}, "runAsUser 0"},
		{"user in the image", nil, ImageUser{UID: &user}, ""},
		{"root in the image", nil, ImageUser{UID: &zero}, "runs as root"},
		{"name in the image", nil, ImageUser{Name: "alice"}, `user "alice" is no number`},
		{"nothing known", nil, ImageUser{}, "runs as root"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			container := &v1.Container{Name: "main", SecurityContext: &v1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: c.run}}
			err := verifyNonRoot(&v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{}}}, container, c.image)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestPodDNS(t *testing.T) {
	t.Parallel()
	host := parseResolv("# comment\nnameserver 192.0.2.53\nsearch old\nsearch a b\noptions ndots:1 rotate\nnameserver ::1\n")
	if diff := cmp.Diff(dnsConfig{Servers: []string{"192.0.2.53", "::1"}, Searches: []string{"a", "b"}, Options: []string{"ndots:1", "rotate"}}, host); diff != "" {
		t.Fatal(diff)
	}
	const tail = "\n  containers: [{name: main, image: busybox}]"
	local := dnsConfig{Servers: []string{"127.0.0.53"}}
	cases := []struct {
		name, spec string
		host       dnsConfig
		want       *runtimeapi.DNSConfig
	}{
		{"host's", "  dnsPolicy: Default", host, &runtimeapi.DNSConfig{Servers: host.Servers, Searches: host.Searches, Options: host.Options}},
		{"loopback is left to the runtime", "  dnsPolicy: ClusterFirst", local, nil},
		{"loopback in the host's network", "  hostNetwork: true", local, &runtimeapi.DNSConfig{Servers: local.Servers}},
		{"none", "  dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.1]}", host, &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}}},
		{"added", "  dnsConfig: {nameservers: [192.0.2.53, 192.0.2.2, 192.0.2.3], searches: [c], options: [{name: ndots, value: '5'}, {name: edns0}]}", host,
			&runtimeapi.DNSConfig{Servers: []string{"192.0.2.53", "::1", "192.0.2.2"}, Searches: []string{"a", "b", "c"}, Options: []string{"rotate", "ndots:5", "edns0"}}},
	}
	for _, c := range cases {
		p, _ := parse(t, c.spec+tail)
		if diff := cmp.Diff(c.want, podDNS(p, c.host), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestHostsFile(t *testing.T) {
	t.Parallel()
	p, _ := parse(t, "  hostAliases: [{ip: 192.0.2.9, hostnames: [db, db.test]}]\n  containers: [{name: main, image: busybox}]")
	got := HostsFile(p, Host{HostsFile: "127.0.0.1 localhost\n"}, []string{"10.0.0.2", "fd00::2"})
	for _, line := range []string{"127.0.0.1\tlocalhost\n", "10.0.0.2\tweb\n", "fd00::2\tweb\n", "192.0.2.9\tdb\tdb.test\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("got %q, want %q in it", got, line)
		}
	}
	p.Spec.HostNetwork = true
	if got := HostsFile(p, Host{HostsFile: "192.0.2.7 box\n\n"}, nil); !strings.HasSuffix(got, "192.0.2.7 box\n192.0.2.9\tdb\tdb.test\n") {
		t.Errorf("host network: got %q", got)
	}
}

func TestHostname(t *testing.T) {
	t.Parallel()
	p, _ := parse(t, "  containers: [{name: main, image: busybox}]")
	p.Name = strings.Repeat("a", 62) + ".b"
	if got := hostname(p); got != strings.Repeat("a", 62) {
		t.Errorf("got %q", got)
	}
	p.Spec.Hostname = "box"
	if got := hostname(p); got != "box" {
		t.Errorf("got %q", got)
	}
}

// TestHugePages: every page size of the host has a limit, 0 by default.
func TestHugePages(t *testing.T) {
	t.Parallel()
	host := Host{HugePages: []int64{64 << 10, 2 << 20, 1 << 30}}
	for limits, want := range map[string]string{
		"{}":                   "64KB=0 2MB=0 1GB=0",
		"{hugepages-2Mi: 4Mi}": "64KB=0 2MB=4194304 1GB=0",
		"{hugepages-1024Mi: 1Gi, hugepages-64Ki: 64Ki}": "64KB=65536 2MB=0 1GB=1073741824",
		"{hugepages-32Mi: 64Mi}":                        "64KB=0 2MB=0 1GB=0 32MB=67108864", // the host lacks the size: the runtime refuses it
	} {
		p, _ := parse(t, "  containers: [{name: main, image: busybox, resources: {limits: "+limits+"}}]")
		var got []string
		for _, l := range resources(p, &p.Spec.Containers[0], host).GetHugepageLimits() {
			got = append(got, fmt.Sprintf("%s=%d", l.GetPageSize(), l.GetLimit()))
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", limits, diff)
		}
	}
}
