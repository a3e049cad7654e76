package sandbox_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzPodConfig checks that each configuration is either rejected or creates a sandbox whose status and list entry
// match it and that can be removed.
func FuzzPodConfig(f *testing.F) {
	for _, text := range []string{
		`{}`,
		`{"metadata":{"name":"web","namespace":"default","uid":"u","attempt":3},"hostname":"web","logDirectory":"/l","labels":{"a":"b"},"annotations":{"c":"d"}}`,
		`{"metadata":{"name":"a_b","namespace":"_","uid":"_"},"labels":{"annotation.x":"y","io.kubernetes.docker.type":"container"},"annotations":{"annotation.":""}}`,
		`{"metadata":{"name":"p"},"portMappings":[{"protocol":"SCTP","containerPort":80,"hostPort":-1,"hostIp":"::1"},{"containerPort":99999}],"dnsConfig":{"servers":["x"],"options":["a:b"]}}`,
		`{"metadata":{"name":"p"},"linux":{"cgroupParent":"/../x","sysctls":{"a.b":"1"},"overhead":{"cpuQuota":"-1"},"resources":{"memoryLimitInBytes":"1"},"securityContext":{"namespaceOptions":{"network":"NODE","pid":"TARGET","ipc":"NODE"},"supplementalGroups":["-1"],"runAsUser":{"value":"-1"},"seccomp":{"profileType":"Localhost","localhostRef":"/x"}}}}`,
	} {
		f.Add(text)
	}
	s, engine, _ := inMemory()
	f.Fuzz(func(t *testing.T, text string) {
		config := &runtimeapi.PodSandboxConfig{}
		if len(text) > 16<<10 || protojson.Unmarshal([]byte(text), config) != nil {
			return
		}
		before := len(engine.Containers())
		r, err := s.RunPodSandbox(t.Context(), request(config))
		if err != nil {
			if len(engine.Containers()) != before {
				t.Errorf("refused, and something was left: %v", err)
			}
			return
		}
		status := statusOf(t, s, r.GetPodSandboxId())
		items := listBy(t, s, &runtimeapi.PodSandboxFilter{Id: r.GetPodSandboxId()})
		if len(items) != 1 {
			t.Fatalf("listed %d times", len(items))
		}
		for _, got := range []interface {
			GetMetadata() *runtimeapi.PodSandboxMetadata
			GetLabels() map[string]string
			GetAnnotations() map[string]string
		}{status, items[0]} {
			want := &runtimeapi.PodSandbox{Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations()}
			if have := (&runtimeapi.PodSandbox{Metadata: got.GetMetadata(), Labels: got.GetLabels(), Annotations: got.GetAnnotations()}); !proto.Equal(want, have) {
				t.Errorf("%T: got %v, want %v", got, have, want)
			}
		}
		if n := status.GetLinux().GetNamespaces().GetOptions().GetNetwork(); n != config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() {
			t.Errorf("got network %v", n)
		}
		if _, err := proto.Marshal(status); err != nil {
			t.Error(err)
		}
		if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.GetPodSandboxId()}); err != nil {
			t.Error(err)
		}
	})
}
