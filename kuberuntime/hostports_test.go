package kuberuntime

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestHostPortsHaveOnePod: a second pod with the same host port fails until the first pod is removed, also if another
// tool created the first pod. The error names the first pod.
func TestHostPortsHaveOnePod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := deadline(t)
	up := func(name, port string) error {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: 'busybox:1', ports: [{containerPort: 80, " + port + "}]}]}"
		set, err := manifest.Read(manifest.Options{}, strings.NewReader(text), "-")
		if err != nil {
			t.Fatal(err)
		}
		if err := Prepare(set.Pods[0].Pod, "", f.o.Now()); err != nil {
			t.Fatal(err)
		}
		_, err = f.Up(ctx, set.Pods[0].Pod, set, false)
		return err
	}
	foreign := f.stub.AddPod("kube-system", "proxy")
	f.stub.AddContainer(foreign, "c", func(c *runtimeapi.ContainerConfig) {
		c.Annotations = map[string]string{pod.PortsAnnotation: `[{"hostPort": 443, "containerPort": 443, "protocol": "TCP"}]`}
	})
	f.stub.AddPod("default", "plain", func(c *runtimeapi.PodSandboxConfig) { // the runtime tells the ports of its sandbox alone
		c.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8443}, {ContainerPort: 81}}
	})
	for i, c := range []struct{ port, taken string }{
		{"hostPort: 8080", ""},
		{"hostPort: 8080", "host port 8080/TCP is taken by pod default/p0"},
		{"hostPort: 8080, hostIP: 127.0.0.1", "host port 8080/TCP is taken by pod default/p0"},
		{"hostPort: 8080, protocol: UDP", ""},
		{"hostPort: 8081, hostIP: 127.0.0.1", ""},
		{"hostPort: 8081, hostIP: 127.0.0.2", ""},
		{"hostPort: 443", "host port 443/TCP is taken by pod kube-system/proxy"},
		{"hostPort: 8443", "host port 8443/TCP is taken by pod default/plain"},
		{"hostPort: 8082, hostIP: 127.0.0.1", ""},
		{"hostPort: 8082, hostIP: '::0'", "host port 8082/TCP is taken by pod default/p8"},
	} {
		if err := up(fmt.Sprint("p", i), c.port); (err == nil) != (c.taken == "") || err != nil && err.Error() != c.taken {
			t.Errorf("%s: got %v, want %q", c.port, err, c.taken)
		}
	}
	f.stub.StopPod(foreign)
	if err := up("p6", "hostPort: 443"); err != nil {
		t.Errorf("when the other is gone: %v", err)
	}
}

// TestHostPortsThatCannotBeKnown: a runtime that does not answer hides the ports of another tool's pod. A pod that is gone
// has none.
func TestHostPortsThatCannotBeKnown(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]string{
		codes.NotFound: "", codes.Unavailable: "find the host ports of pod default/plain: rpc error: code = Unavailable desc = gone",
	} {
		f := newFixture(t, func(o *Options) {
			o.answer(map[string]func() (proto.Message, error){"PodSandboxStatus": func() (proto.Message, error) { return nil, status.Error(code, "gone") }})
		})
		f.stub.AddPod("default", "plain")
		release, err := f.TakeHostPorts(deadline(t), "u", []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}})
		if err == nil {
			err = release()
		}
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: got %v, want %q", code, err, want)
		}
	}
}
