package shim_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
)

// These tests cover checks of the public CRI validation suite that no other test covers. The shim is configured as in
// serve.

// TestOnePodOfAnIdentity checks that there is never a second sandbox with the same name, namespace, uid and attempt,
// even if requests are cancelled.
func TestOnePodOfAnIdentity(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	label := map[string]string{"test": rand.Text()}
	config := func(attempt uint32) *runtimeapi.PodSandboxConfig {
		return &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "one", Namespace: "test", Uid: label["test"], Attempt: attempt},
			Labels:   label,
		}
	}
	listed := func() []*runtimeapi.PodSandbox {
		t.Helper()
		r, err := d.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: label}})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetItems()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
		defer cancel()
		r, err := d.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: label}})
		if err != nil {
			t.Error(err)
		}
		for _, p := range r.GetItems() {
			if _, err := d.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.GetId()}); err != nil {
				t.Error(err)
			}
		}
	})
	run := func(ctx context.Context, attempt uint32) (string, error) {
		r, err := d.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config(attempt)})
		return r.GetPodSandboxId(), err
	}

	// A cancelled request, and retries during its clean-up.
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	_, err := run(short, 0)
	cancel()
	t.Logf("the short request ended with %v", err)
	// An incomplete sandbox is listed as not ready until its request has removed it.
	var first string
	test.Until(t, "a sandbox is ready", func() bool {
		_, _ = run(t.Context(), 0)
		for _, p := range listed() {
			if p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				first = p.GetId()
			}
		}
		return first != ""
	})
	for range 10 {
		if _, err := run(t.Context(), 0); err == nil {
			t.Error("the same identity was taken twice")
		}
		if l := listed(); len(l) != 1 || l[0].GetId() != first {
			t.Fatalf("got %v, want the first sandbox only", l)
		}
	}

	// Concurrent requests for a new identity.
	var group sync.WaitGroup
	ids := make([]string, 5)
	for i := range ids {
		group.Go(func() { ids[i], _ = run(t.Context(), 1) })
	}
	group.Wait()
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) != 1 || len(listed()) != 2 {
		t.Errorf("got %v from requests at one time and %d sandboxes, want one more", ids, len(listed()))
	}

	// The identity is free after the sandbox is removed, not before.
	if _, err := d.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: first}); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), 0); err == nil {
		t.Error("the identity of a stopped sandbox was taken")
	}
	if _, err := d.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: first}); err != nil {
		t.Fatal(err)
	}
	if id, err := run(t.Context(), 0); err != nil || id == first {
		t.Errorf("after the removal: got %s, %v", id, err)
	}
}

// TestRepetitionsOfNothing checks that missing objects can be stopped and removed, even if the id is not in the
// engine's form.
func TestRepetitionsOfNothing(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	ctx, none := t.Context(), "5c9e1f0a-93a1-4f7e-8d0a-2f6f6c2b7f11"
	for range 2 {
		_, stopPod := c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: none})
		_, removePod := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: none})
		_, stop := c.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: none})
		_, remove := c.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: none})
		_, image := c.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: strings.Repeat("0", 64)}})
		for what, err := range map[string]error{"stop pod": stopPod, "remove pod": removePod, "stop": stop, "remove": remove, "remove image": image} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// TestPodsWithoutContainers checks that an empty pod has stats, alone, in lists and in streamed lists.
func TestPodsWithoutContainers(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	label := map[string]string{"fresh": rand.Text()}
	p := d.pod(t, func(config *runtimeapi.PodSandboxConfig) { config.Labels = label })
	other := map[string]string{"fresh": "no"}
	has := func(list []*runtimeapi.PodSandboxStats) bool {
		return slices.ContainsFunc(list, func(s *runtimeapi.PodSandboxStats) bool { return s.GetAttributes().GetId() == p.id })
	}
	for what, tc := range map[string]struct {
		filter *runtimeapi.PodSandboxStatsFilter
		want   bool
	}{
		"everything":    {nil, true},
		"the id":        {&runtimeapi.PodSandboxStatsFilter{Id: p.id}, true},
		"a label":       {&runtimeapi.PodSandboxStatsFilter{LabelSelector: label}, true},
		"another label": {&runtimeapi.PodSandboxStatsFilter{LabelSelector: other}, false},
		"another id":    {&runtimeapi.PodSandboxStatsFilter{Id: "non-existent-id"}, false},
	} {
		list, err := d.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: tc.filter})
		if err != nil || has(list.GetStats()) != tc.want || tc.filter != nil && len(list.GetStats()) > 1 {
			t.Errorf("%s: got %v, %v", what, list.GetStats(), err)
		}
		stream, err := d.StreamPodSandboxStats(t.Context(), &runtimeapi.StreamPodSandboxStatsRequest{Filter: tc.filter})
		if err != nil {
			t.Fatal(err)
		}
		var streamed []*runtimeapi.PodSandboxStats
		for part, err := stream.Recv(); !errors.Is(err, io.EOF); part, err = stream.Recv() {
			if err != nil {
				t.Fatal(err)
			}
			streamed = append(streamed, part.GetPodSandboxStats()...)
		}
		if has(streamed) != tc.want {
			t.Errorf("%s, streamed: got %v", what, streamed)
		}
	}
	one, err := d.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	if err != nil || one.GetStats().GetLinux().GetNetwork().GetDefaultInterface().GetName() == "" {
		t.Errorf("got %v, %v", one, err)
	}
	metrics, err := d.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil || !slices.ContainsFunc(metrics.GetPodMetrics(), func(m *runtimeapi.PodSandboxMetrics) bool { return m.GetPodSandboxId() == p.id }) {
		t.Errorf("metrics: got %v, %v", metrics, err)
	}
}

// TestWhatIsRemovedIsGone removes an image, container and pod several times concurrently. Each request succeeds, and
// the object is gone afterwards.
func TestWhatIsRemovedIsGone(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	p := d.pod(t, nil)
	maker := p.start(t, shell("maker", "date +%N >/made"))
	d.exited(t, maker)
	ctx := t.Context()
	for i := range 5 {
		made, err := d.engine.ContainerCommit(ctx, maker, container.CommitOptions{
			Reference: fmt.Sprintf("crishim-test/gone:%d-%s", i, p.id[:12]), Comment: strconv.Itoa(i),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { forgetImage(t, d.cri, made.ID) })
		spec := &runtimeapi.ImageSpec{Image: made.ID}
		if s, err := d.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec}); err != nil || s.GetImage() == nil {
			t.Fatalf("got %v, %v", s, err)
		}
		victim := p.create(t, shell(fmt.Sprintf("victim-%d", i), idle))
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				if _, err := d.image.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec}); err != nil {
					t.Errorf("remove the image: %v", err)
				}
				if s, err := d.image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec}); err != nil || s.GetImage() != nil {
					t.Errorf("the removed image: got %v, %v", s, err)
				}
				if _, err := d.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: victim}); err != nil {
					t.Errorf("remove the container: %v", err)
				}
				l, err := d.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: victim}})
				if err != nil || len(l.GetContainers()) != 0 {
					t.Errorf("the removed container: got %v, %v", l, err)
				}
			})
		}
		group.Wait()
	}
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			if _, err := d.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
				t.Errorf("stop the pod: %v", err)
			}
			if _, err := d.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
				t.Errorf("remove the pod: %v", err)
			}
			l, err := d.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: p.id}})
			if err != nil || len(l.GetItems()) != 0 {
				t.Errorf("the removed pod: got %v, %v", l, err)
			}
		})
	}
	group.Wait()
}

// TestSandboxWithTheNodesProcesses checks that containers in the node's PID namespace see each other and the node.
func TestSandboxWithTheNodesProcesses(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	o := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) { config.Linux.SecurityContext.NamespaceOptions = o })
	marked := shell("marked", "exec sleep 98765")
	marked.Linux.SecurityContext.NamespaceOptions = o
	p.start(t, marked)
	look := shell("look", idle)
	look.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{} // the pod's namespaces
	id := p.start(t, look)
	if got := c.execSync(t, id, "ps | grep '[s]leep 98765'"); got.GetExitCode() != 0 {
		t.Errorf("the other container's process: got %v", got)
	}
	host, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.execSync(t, id, "readlink /proc/self/ns/pid").GetStdout()); got != host+"\n" {
		t.Errorf("got %s, want the node's %s", got, host)
	}
}

// TestExecIsTheContainersUser checks that an exec has the user, groups and limits of the container.
func TestExecIsTheContainersUser(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	const strict = runtimeapi.SupplementalGroupsPolicy_Strict
	for name, tc := range map[string]struct {
		sc   *runtimeapi.LinuxContainerSecurityContext
		want string
	}{
		"groups":   {&runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: []int64{1234, 5678}}, "0 root 0 1234 5678"},
		"merged":   {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(1000), SupplementalGroups: []int64{50000}}, "1000 alice 1000 1234 50000"},
		"strict":   {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(1000), SupplementalGroups: []int64{50000}, SupplementalGroupsPolicy: strict}, "1000 alice 1000 50000"},
		"by-name":  {&runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "alice"}, "1000 alice 1000 1234"},
		"by-group": {&runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(1000), RunAsGroup: num(1002), SupplementalGroupsPolicy: strict}, "1000 alice 1002"},
	} {
		config := shell(name, idle)
		config.Linux.SecurityContext = tc.sc
		got := c.execSync(t, p.start(t, config), `echo $(id -u) $(id -nu) $(id -G | tr ' ' '\n' | sort -n)`)
		if strings.TrimSpace(string(got.GetStdout())) != tc.want || len(got.GetStderr()) > 0 {
			t.Errorf("%s: got %v, want %s", name, got, tc.want)
		}
	}
}

// TestWhatProfilesAndCapabilitiesAllow sets the host name: it works with the capability and no profile, but not without
// the capability or with a profile that forbids it. All capabilities can be added and dropped.
func TestWhatProfilesAndCapabilitiesAllow(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	profile := filepath.Join(t.TempDir(), "no-sethostname.json")
	text := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["sethostname"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(profile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(name string, add, drop []string, seccomp *runtimeapi.SecurityProfile) string {
		config := shell(name, idle)
		config.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddCapabilities: add, DropCapabilities: drop}
		config.Linux.SecurityContext.Seccomp = seccomp
		return p.start(t, config)
	}
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	forbidding := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: profile}
	for name, tc := range map[string]struct {
		add     []string
		seccomp *runtimeapi.SecurityProfile
		allowed bool
	}{
		"plain": {nil, unconfined, false}, "allowed": {[]string{"SYS_ADMIN"}, unconfined, true}, "forbidden": {[]string{"SYS_ADMIN"}, forbidding, false},
	} {
		if got := c.execSync(t, with(name, tc.add, nil, tc.seccomp), "hostname ANewHostName"); (got.GetExitCode() == 0) != tc.allowed {
			t.Errorf("%s: got %v", name, got)
		}
	}
	bounds := func(id string) uint64 {
		t.Helper()
		text := string(c.execSync(t, id, "grep CapBnd /proc/self/status").GetStdout())
		set, err := strconv.ParseUint(strings.TrimSpace(line(text, "CapBnd:")), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	const some = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_SYSLOG
	if got := bounds(with("none", nil, []string{"ALL"}, nil)); got != 0 {
		t.Errorf("all dropped: got %x", got)
	}
	if got := bounds(with("all", []string{"ALL"}, nil, nil)); got&some != some {
		t.Errorf("all added: got %x", got)
	}
	if got := bounds(with("all-but-one", []string{"ALL"}, []string{"SYS_ADMIN"}, nil)); got&some != some&^(1<<unix.CAP_SYS_ADMIN) {
		t.Errorf("all added but one: got %x", got)
	}
}

// TestRecursiveReadOnlyMounts checks a mount below a read-only mount.
func TestRecursiveReadOnlyMounts(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "mounting needs root")
	}
	c := newCRI(t)
	node, err := c.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	able := slices.ContainsFunc(node.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool {
		return h.GetName() == "" && h.GetFeatures().GetRecursiveReadOnlyMounts()
	})
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", below, "tmpfs", 0, ""); err != nil {
		test.Missing(t, "cannot mount here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(below, unix.MNT_DETACH) })
	p := c.pod(t, nil)
	write := func(recursive bool) *runtimeapi.ContainerConfig {
		config := shell(fmt.Sprintf("write-%t", recursive), "touch /m/file 2>&1; touch /m/below/file 2>&1 && echo written")
		config.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/m", Readonly: true, RecursiveReadOnly: recursive}}
		return config
	}
	if got := p.output(t, write(false)); !strings.Contains(got, "touch: /m/file: Read-only") || !strings.Contains(got, "written") {
		t.Errorf("a plain read-only mount: got %q", got)
	}
	if !able {
		if _, err := p.tryCreate(t, write(true)); err == nil {
			t.Error("an engine that cannot do it took a recursive read-only mount")
		}
		return
	}
	if got := p.output(t, write(true)); strings.Contains(got, "written") || strings.Count(got, "Read-only file system") != 2 {
		t.Errorf("a recursive read-only mount: got %q", got)
	}
	for what, change := range map[string]func(*runtimeapi.Mount){
		"not read-only": func(m *runtimeapi.Mount) { m.Readonly = false },
		"slave":         func(m *runtimeapi.Mount) { m.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER },
		"shared":        func(m *runtimeapi.Mount) { m.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL },
	} {
		config := write(true)
		config.Metadata.Name = what
		change(config.GetMounts()[0])
		if _, err := p.tryCreate(t, config); err == nil {
			t.Errorf("%s: a recursive read-only mount was taken", what)
		}
	}
}

// TestPortsDNSAndSysctls checks that a web server in a pod is reachable at the pod's address and at the host port, and
// that the container has the pod's DNS configuration and sysctls.
func TestPortsDNSAndSysctls(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	port := test.FreePort(t)
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: int32(port)}, {ContainerPort: 81}}
		config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.10.10.10"}, Searches: []string{"google.com"}, Options: []string{"ndots:8"}}
		config.Linux.Sysctls = map[string]string{"kernel.shm_rmid_forced": "1", "fs.mqueue.msg_max": "100"}
	})
	p.start(t, shell("web", "mkdir /www; echo it works >/www/index.html; exec httpd -f -p 80 -h /www"))
	address := c.podStatus(t, p.id).GetStatus().GetNetwork().GetIp()
	for _, at := range []string{net.JoinHostPort(address, "80"), fmt.Sprintf("127.0.0.1:%d", port)} {
		test.Until(t, "the page at "+at, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/index.html", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
	got := p.output(t, shell("look", "cat /etc/resolv.conf /proc/sys/kernel/shm_rmid_forced /proc/sys/fs/mqueue/msg_max; hostname"))
	for _, want := range []string{"nameserver 10.10.10.10\n", "search google.com\n", "options ndots:8\n", "\n1\n100\n" + p.config.GetHostname() + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// TestPortsOfOneAddress checks that a port is published only for its protocol and at the requested address.
func TestPortsOfOneAddress(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	tcp, udp := test.FreePort(t), test.FreePort(t)
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.PortMappings = []*runtimeapi.PortMapping{
			{ContainerPort: 80, HostPort: int32(tcp), HostIp: "127.0.0.2"},
			{ContainerPort: 53, HostPort: int32(udp), HostIp: "127.0.0.1", Protocol: runtimeapi.Protocol_UDP},
		}
	})
	dial := func(network, address string) error {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), network, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("hello"))
		return err
	}
	p.start(t, shell("web", "exec httpd -f -p 80 -h /"))
	test.Until(t, "TCP reaches the container", func() bool { return dial("tcp", fmt.Sprintf("127.0.0.2:%d", tcp)) == nil })

	sandbox, err := c.engine.ContainerInspect(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	var inPod net.PacketConn
	if err := ns.WithNetNSPath(fmt.Sprintf("/proc/%d/ns/net", sandbox.State.Pid), func(ns.NetNS) (err error) {
		inPod, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", ":53")
		return err
	}); err != nil {
		test.Missing(t, "the pod's network cannot be entered: %v", err)
	}
	defer inPod.Close()
	test.Until(t, "UDP reaches the pod", func() bool {
		if err := dial("udp", fmt.Sprintf("127.0.0.1:%d", udp)); err != nil {
			return false
		}
		if err := inPod.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, _, err := inPod.ReadFrom(b)
		return err == nil && string(b[:n]) == "hello"
	})
	if err := dial("tcp", fmt.Sprintf("127.0.0.1:%d", tcp)); err == nil {
		t.Error("the TCP port is open at another address")
	}
	if err := dial("tcp", fmt.Sprintf("127.0.0.1:%d", udp)); err == nil {
		t.Error("the UDP port is open for TCP")
	}
}
