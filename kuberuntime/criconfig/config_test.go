package criconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// parse reads a pod whose spec is given as YAML. extra are further documents.
func parse(t *testing.T, spec string, extra ...string) (*v1.Pod, *manifest.Set) {
	t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: w}, annotations: {note: x}}\nspec:\n" + spec
	for _, e := range extra {
		text += "\n---\n" + e
	}
	set, err := manifest.Read(manifest.Options{}, strings.NewReader(text), "-")
	if err != nil {
		t.Fatal(err)
	}
	set.Pods[0].UID = "u1"
	return set.Pods[0].Pod, set
}

func testHost() Host {
	return Host{Name: "node", IPs: []string{"192.0.2.1"}, CPUs: 4, Memory: 1 << 30, SwapControl: true,
		DNS: dnsConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []string{"ndots:1"}}}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	env := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "EMPTY"}, {Key: "LOOP", Value: []byte("$(A)")}}
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(EMPTY)": "", "$(NONE)": "$(NONE)",
		"$$(A)": "$(A)", "$$$(A)": "$1", "$": "$", "$A": "$A", "$(A": "$(A", "a$": "a$", "$(LOOP)": "$(A)", "$()": "$()",
	} {
		if got := expandKnown(in, env); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestExpandAll(t *testing.T) {
	t.Parallel()
	env := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}}
	if got, err := ExpandAll("$(A)/$$(B)", env); got != "1/$(B)" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := ExpandAll("$(A)/$(B)/$(C)", env); err == nil || err.Error() != "there is no variable B, C" {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A) $$ $( $")
	f.Fuzz(func(t *testing.T, s string) {
		if got := expandKnown(s, nil); !strings.Contains(s, "$$") && got != s {
			t.Errorf("%q changed to %q", s, got)
		}
	})
}

func TestEnv(t *testing.T) {
	t.Parallel()
	p, set := parse(t, `
  containers:
  - name: main
    image: busybox
    resources: {limits: {cpu: 500m}}
    envFrom:
    - {prefix: C_, configMapRef: {name: conf}}
    - {secretRef: {name: none, optional: true}}
    env:
    - {name: FIRST, value: one}
    - {name: SECOND, value: "$(FIRST)-$(C_a)-$(NONE)"}
    - {name: C_a, value: overridden}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MILLI, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: MEM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: KEY, valueFrom: {secretKeyRef: {name: key, key: k}}}
    - {name: GONE, valueFrom: {configMapKeyRef: {name: conf, key: gone, optional: true}}}
`, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: A, 'b': B}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {k: secret}")
	env, err := Env(p, &p.Spec.Containers[0], set, testHost(), []string{"10.0.0.2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range env {
		got = append(got, e.Key+"="+string(e.Value))
	}
	want := []string{
		"C_a=overridden", "C_b=B", "FIRST=one", "SECOND=one-A-$(NONE)", "IP=10.0.0.2", "NODE=node", "APP=w",
		"CPU=1", "MILLI=500", "MEM=1024", "KEY=secret",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	p, _ := parse(t, `
  securityContext: {fsGroup: 7, supplementalGroups: [5], sysctls: [{name: net/ipv4/conf/eth0.1/x, value: "1"}]}
  shareProcessNamespace: true
  containers: [{name: main, image: busybox, ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 81}], securityContext: {privileged: true}}]
`)
	g := &Generator{Host: testHost(), Dirs: pod.Dirs{Root: "/root", Logs: "/logs"}}
	want := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1", Attempt: 2},
		Hostname:     "web",
		LogDirectory: "/logs/default_web_u1",
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []string{"ndots:1"}},
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080}},
		Labels:       map[string]string{"app": "w", kube.LabelPodName: "web", kube.LabelPodNamespace: "default", kube.LabelPodUID: "u1"},
		Annotations:  map[string]string{"note": "x"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			Sysctls: map[string]string{"net.ipv4.conf.eth0/1.x": "1"},
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				Privileged: true, SupplementalGroups: []int64{5, 7},
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD},
				Seccomp:          &runtimeapi.SecurityProfile{},
			},
		},
	}
	if diff := cmp.Diff(want, g.Sandbox(p, 2), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestContainer(t *testing.T) {
	t.Parallel()
	p, set := parse(t, `
  securityContext: {runAsUser: 1000, runAsNonRoot: true}
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "echo $(WHO)"]
    args: ["$$(WHO)"]
    env: [{name: WHO, value: me}]
    workingDir: /w
    ports: [{containerPort: 80}]
    lifecycle: {stopSignal: SIGUSR1, preStop: {sleep: {seconds: 1}}}
    resources: {limits: {cpu: 100m, memory: 64Mi, hugepages-2Mi: 4Mi}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {add: [NET_ADMIN], drop: [ALL]}}
`)
	g := &Generator{Host: testHost(), Dirs: pod.Dirs{Root: "/root", Logs: "/logs"}}
	c := &p.Spec.Containers[0]
	env, err := Env(p, c, set, g.Host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := g.Container(ContainerInput{Pod: p, Container: c, Env: env, Restarts: 3, Attempt: 4, ImageRef: "sha256:1"})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: "main", Attempt: 4},
		Image:      &runtimeapi.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "busybox"},
		Command:    []string{"sh", "-c", "echo me"},
		Args:       []string{"$(WHO)"},
		WorkingDir: "/w",
		Envs:       []*runtimeapi.KeyValue{{Key: "WHO", Value: []byte("me")}},
		Labels:     map[string]string{kube.LabelPodName: "web", kube.LabelPodNamespace: "default", kube.LabelPodUID: "u1", kube.LabelContainerName: "main"},
		Annotations: map[string]string{
			pod.HashAnnotation: pod.FormatHash(pod.ContainerHash(c)), pod.RestartCountAnnotation: "3",
			pod.MessagePathAnnotation: "/dev/termination-log", pod.MessagePolicyAnnotation: "File",
			pod.TerminationGraceAnnotation: "30", pod.PreStopAnnotation: `{"sleep":{"seconds":1}}`,
			pod.PortsAnnotation: `[{"containerPort":80,"protocol":"TCP"}]`,
		},
		LogPath:    "main/4.log",
		StopSignal: runtimeapi.Signal_SIGNAL_SIGUSR1,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{
				CpuShares: 102, CpuPeriod: 100000, CpuQuota: 10000, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20,
				OomScoreAdj: -997, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}},
			},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				RunAsUser: &runtimeapi.Int64Value{Value: 1000}, NoNewPrivs: true, ReadonlyRootfs: true,
				Capabilities:     &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"}},
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{}, MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths,
			},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}
