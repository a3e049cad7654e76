package verbs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli/crifile"
)

// dryRun is the pod and the container that a one-line run would make.
func dryRun(t *testing.T, args ...string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) {
	t.Helper()
	c := &commandTest{t: t, vars: map[string]string{"HOME": "/root"}}
	r := c.run(append([]string{"run", "--dry-run", "--name", "x"}, args...)...)
	if r.code != 0 {
		t.Fatal(r.err)
	}
	pod, container := &runtimeapi.PodSandboxConfig{}, &runtimeapi.ContainerConfig{}
	decoder := json.NewDecoder(strings.NewReader(r.out))
	for _, m := range []proto.Message{pod, container} {
		var request struct{ Config json.RawMessage }
		if err := decoder.Decode(&request); err != nil {
			t.Fatal(err)
		}
		doc, err := crifile.ParseOne("config", request.Config)
		if err == nil {
			err = doc.Decode(m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return pod, container
}

func TestOneLineRun(t *testing.T) {
	pod, container := dryRun(t, "-e", "A=b=c,d", "-e", "HOME", "-e", "NOT_SET", "-v", "/a:/b:ro,rslave", "-v", "/c:/d", "-p", "8080:80", "-p", "[::1]:53:53/udp",
		"-u", "1000:2000", "-w", "/tmp", "--cap-add", "net_admin,CAP_SYS_TIME", "--cap-drop", "ALL", "-m", "512Mi", "--cpus", "0.5",
		"--label", "k=v", "--entrypoint", "sh -c", "busybox", "echo $HOME")
	kubelets := map[string]string{"io.kubernetes.pod.name": "x", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": pod.GetMetadata().GetUid(), "k": "v"}
	if diff := cmp.Diff(kubelets, pod.GetLabels()); diff != "" || pod.GetMetadata().GetUid() == "" {
		t.Errorf("the pod's labels differ (-want +got):\n%s", diff)
	}
	kubelets["io.kubernetes.container.name"] = "x"
	wantContainer := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "x"},
		Image:    &runtimeapi.ImageSpec{Image: "busybox", UserSpecifiedImage: "busybox"},
		Command:  []string{"sh", "-c"}, Args: []string{"echo $HOME"}, WorkingDir: "/tmp",
		Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("b=c,d")}, {Key: "HOME", Value: []byte("/root")}},
		Mounts: []*runtimeapi.Mount{
			{HostPath: "/a", ContainerPath: "/b", Readonly: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
			{HostPath: "/c", ContainerPath: "/d"},
		},
		Labels: kubelets,
		Annotations: map[string]string{
			"io.kubernetes.container.ports": `[{"hostPort":8080,"containerPort":80,"protocol":"TCP"},{"hostPort":53,"containerPort":53,"protocol":"UDP","hostIP":"::1"}]`,
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 512 << 20, CpuPeriod: 100000, CpuQuota: 50000},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				RunAsUser: &runtimeapi.Int64Value{Value: 1000}, RunAsGroup: &runtimeapi.Int64Value{Value: 2000},
				Capabilities:     &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN", "SYS_TIME"}, DropCapabilities: []string{"ALL"}},
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
	if diff := cmp.Diff(wantContainer, container, protocmp.Transform()); diff != "" {
		t.Errorf("container differs (-want +got):\n%s", diff)
	}
	wantPorts := []*runtimeapi.PortMapping{
		{HostPort: 8080, ContainerPort: 80},
		{HostIp: "::1", HostPort: 53, ContainerPort: 53, Protocol: runtimeapi.Protocol_UDP},
	}
	if diff := cmp.Diff(wantPorts, pod.GetPortMappings(), protocmp.Transform()); diff != "" {
		t.Errorf("ports differ (-want +got):\n%s", diff)
	}
	if pod.GetHostname() != "x" || pod.GetMetadata().GetName() != "x" || pod.GetLabels()["k"] != "v" {
		t.Errorf("pod is %v", pod)
	}
}

// TestRunWithoutATerminal: the container gets no terminal, as the warning says.
func TestRunWithoutATerminal(t *testing.T) {
	t.Parallel()
	if _, container := dryRun(t, "-it", "busybox"); container.GetTty() || !container.GetStdin() {
		t.Errorf("container is %v", container)
	}
}

func TestOneLineRunOnTheHostNetwork(t *testing.T) {
	pod, container := dryRun(t, "--network", "host", "--privileged", "-u", "alice", "busybox")
	node := runtimeapi.NamespaceMode_NODE
	if pod.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != node ||
		container.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != node {
		t.Errorf("network is not the host's: %v, %v", pod, container)
	}
	if pod.GetHostname() != "" || !pod.GetLinux().GetSecurityContext().GetPrivileged() ||
		!container.GetLinux().GetSecurityContext().GetPrivileged() || container.GetLinux().GetSecurityContext().GetRunAsUsername() != "alice" {
		t.Errorf("pod is %v, container is %v", pod, container)
	}
}
