package crifile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func wholePod() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1", Attempt: 1},
		LogDirectory: "/tmp/logs",
		PortMappings: []*runtimeapi.PortMapping{{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 80, HostPort: 8080}},
		Labels:       map[string]string{"app": "web"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
				RunAsUser:        &runtimeapi.Int64Value{Value: 1000},
			},
		},
	}
}

// decode fills m from a text that holds exactly one document.
func decode(name string, text []byte, m proto.Message) error {
	doc, err := ParseOne(name, text)
	if err != nil {
		return err
	}
	return doc.Decode(m)
}

func TestDecodeSpellings(t *testing.T) {
	for name, text := range map[string]string{
		"JSON in snake_case with numbers": `{
	"metadata": {"name": "web", "namespace": "default", "uid": "u1", "attempt": 1},
	"log_directory": "/tmp/logs",
	"port_mappings": [{"protocol": 1, "container_port": 80, "host_port": 8080}],
	"labels": {"app": "web"},
	"linux": {"security_context": {"namespace_options": {"network": 2}, "run_as_user": {"value": 1000}}}}`,
		"JSON in camelCase with names": `{
	"metadata": {"name": "web", "namespace": "default", "uid": "u1", "attempt": 1},
	"logDirectory": "/tmp/logs",
	"portMappings": [{"protocol": "UDP", "containerPort": 80, "hostPort": 8080}],
	"labels": {"app": "web"},
	"linux": {"securityContext": {"namespaceOptions": {"network": "NODE"}, "runAsUser": {"value": "1000"}}}}`,
		"YAML, with an anchor": `
metadata: {name: &n web, namespace: default, uid: u1, attempt: 1}
log_directory: /tmp/logs
hostname: null
port_mappings:
- protocol: UDP
  containerPort: 80
  hostPort: 8080
labels:
  app: *n
linux:
  security_context:
    namespace_options: {network: NODE}
    run_as_user: {value: 1000}
`,
	} {
		t.Run(name, func(t *testing.T) {
			got := &runtimeapi.PodSandboxConfig{}
			if err := decode("pod", []byte(text), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wholePod(), got, protocmp.Transform()); diff != "" {
				t.Errorf("decoded message differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeComplaints(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "  \n", "f: the file is empty"},
		{"comment only", "# nothing\n", "f: the file is empty"},
		{"unknown field", "metadata:\n  name: x\nhostnam: y\n", `f:3:1: unknown field "hostnam"`},
		{"unknown field of JSON", "{\n \"linux\": {\"security_context\": {\n  \"privilegedd\": true}}}", `f:3:3: linux.security_context: unknown field "privilegedd"`},
		{"twice", "labels: {}\nhostname: a\nhostname: b\n", `f:3: malformed YAML: mapping key "hostname" already defined at line 2`},
		{"twice in two spellings", "log_directory: a\nlogDirectory: b\n", `f: duplicate field "log_directory"`},
		{"label twice", "{\"labels\": {\n\"a\": \"b\", \"a\": \"c\"}}", `f:2:11: duplicate map key "a"`},
		{"number for a string", "hostname: 12\n", "f:1:1: hostname: must be a string"},
		{"bool for a label", "labels: {a: true}\n", "f:1:10: labels.a: must be a string"},
		{"string for a number", "metadata: {attempt: first}\n", "f:1:12: metadata.attempt: must be a number from 0 to 4294967295"},
		{"too big", "metadata: {attempt: 4294967296}\n", "f:1:12: metadata.attempt: must be a number from 0 to 4294967295"},
		{"negative", "metadata: {attempt: -1}\n", "f:1:12: metadata.attempt: must be a number from 0 to 4294967295"},
		{"string for a list", "{\"port_mappings\":\n\"all\"}", "f:1:2: port_mappings: must be a list"},
		{"unknown enum name", "port_mappings: [{protocol: TPC}]\n", "f:1:18: port_mappings[0].protocol: must be one of TCP, UDP, SCTP"},
		{"string for a message", "metadata:\n  name: x\nlinux: host\n", "f:3:1: linux: must be an object"},
		{"list for a message", "metadata:\n  name: x\nlinux: [host]\n", "f:3:1: linux: must be an object"},
		{"string for a map", "labels: a=b", "f:1:1: labels: must be a map"},
		{"string for an element", "port_mappings:\n- protocol: TCP\n- 8080:80\n", "f:3:3: port_mappings[1]: must be an object"},
		{"wrong value in an alias", "labels: &l {a: \"1\"}\nlinux: {sysctls: *l, security_context: {run_as_user: 1000}}", "f:2:41: linux.security_context.run_as_user: must be an object"},
		{"wrong value in a merge", "labels: &l {a: 1}\nannotations: {<<: *l}", "f:2:1: annotations.a: must be a string"},
		{"two documents", "hostname: a\n---\nhostname: b\n", "f: must be one document, found 2"},
		{"malformed second document", "hostname: a\n---\nhostname: b\n  labels: [\n", "f:4: malformed YAML: mapping values are not allowed in this context"},
		{"malformed JSON", "{\n\t\"hostname\": \"a\",\n\t\"labels\": {\"a\" \"b\"}\n}", `f:3: malformed JSON: invalid character '"' after object key`},
		{"JSON cut off", "{\"hostname\": \"a\"", "f:1: malformed JSON: unexpected end of JSON input"},
		{"text after JSON", "{\"hostname\": \"a\"}\nb\n", "f:2: malformed JSON: invalid character 'b' after top-level value"},
		{"a map that holds itself", "labels: &a {b: *a}\n", "f: malformed YAML: anchor 'a' value contains itself"},
		{"a scalar alone", "hello\n", `f: unexpected token "hello"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := decode("f", []byte(test.text), &runtimeapi.PodSandboxConfig{})
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != test.want {
				t.Errorf("error is\n%s\nwant\n%s", err, test.want)
			}
		})
	}
}

// TestComplaintsKeepSecrets: errors do not repeat a wrong value in a container's environment.
func TestComplaintsKeepSecrets(t *testing.T) {
	for _, text := range []string{
		"envs: [PASSWORD=4711]", "envs: PASSWORD=4711", "envs: [{key: PASSWORD, value: 4711}]", "envs: [4711]",
		`{"envs": [{"key": "PASSWORD", "value": 4711}]}`, `{"envs": {"PASSWORD": "4711"}}`, "envs: [{key: PASSWORD, valeu: 4711}]",
	} {
		if err := decode("f", []byte(text), &runtimeapi.ContainerConfig{}); err == nil || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestDecodeContainer(t *testing.T) {
	text := `
metadata: {name: c}
image: {image: busybox}
envs:
- {key: A, value: "1"}
mounts:
- {container_path: /x, host_path: /y, propagation: PROPAGATION_HOST_TO_CONTAINER}
- {container_path: /z, host_path: /y, propagation: PROPAGATION_BIDIRECTIONAL}
stop_signal: SIGNAL_SIGTERM
CDI_devices: [{name: a/b=c}]
linux: {resources: {memory_limit_in_bytes: 9007199254740993}}
`
	want := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
		Image:    &runtimeapi.ImageSpec{Image: "busybox"},
		Envs:     []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}},
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/x", HostPath: "/y", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
			{ContainerPath: "/z", HostPath: "/y", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		},
		StopSignal: runtimeapi.Signal_SIGNAL_SIGTERM,
		CDIDevices: []*runtimeapi.CDIDevice{{Name: "a/b=c"}},
		Linux:      &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 9007199254740993}},
	}
	got := &runtimeapi.ContainerConfig{}
	if err := decode("c.yaml", []byte(text), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("decoded message differs (-want +got):\n%s", diff)
	}
}

// TestDecodeText: a text stays as it is written, even if YAML has another type for it.
func TestDecodeText(t *testing.T) {
	got := &runtimeapi.PodSandboxConfig{}
	if err := decode("f", []byte("labels: &l {date: 2024-01-01, 1: 0x}\nannotations: {<<: *l, date: \"12\"}"), got); err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.PodSandboxConfig{
		Labels:      map[string]string{"date": "2024-01-01", "1": "0x"},
		Annotations: map[string]string{"date": "12", "1": "0x"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("decoded message differs (-want +got):\n%s", diff)
	}
}

// TestEncodeComesBack: Decode reads the output of Encode.
func TestEncodeComesBack(t *testing.T) {
	container := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: 2},
		Envs:     []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}},
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 9007199254740993}},
	}
	for _, m := range []proto.Message{wholePod(), container} {
		text, err := json.Marshal(Encode(m))
		if err != nil {
			t.Fatal(err)
		}
		got := m.ProtoReflect().New().Interface()
		if err := decode("again", text, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", text, diff)
		}
	}
}

func TestHas(t *testing.T) {
	docs, err := Parse("f", []byte("log_directory: a\n---\nimage: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 2 || !docs[0].Has("log_directory") || docs[0].Has("image") || !docs[1].Has("image") {
		t.Errorf("documents are not told apart: %v", docs)
	}
	for text, want := range map[string]bool{
		"metadata: {attempt: 0}":                      true,
		`{"metadata": {"name": "a", "attempt": 3}}`:   true,
		"labels: &a {attempt: 1}\nmetadata: *a":       true,
		"metadata: {name: attempt}\nattempt: 1":       false,
		"metadata: {attempt: null}":                   false,
		"metadata: attempt":                           false,
		"metadata: [attempt, 1]":                      false,
		"labels: {attempt: 1}\nmetadata: {name: web}": false,
	} {
		doc, err := ParseOne("f", []byte(text))
		if err != nil || doc.Has("metadata", "attempt") != want {
			t.Errorf("%q: attempt %v, %v, want %v", text, !want, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("metadata: {name: x}")
	f.Add(`{"labels": {"a": "b"}}`)
	f.Add("a: &a [*a]")
	f.Add("---\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		err := decode("f", []byte(text), &runtimeapi.PodSandboxConfig{})
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("error without file name: %v", err)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for b.Loop() {
		if err := decode("f", []byte("metadata: {name: x}"), &runtimeapi.PodSandboxConfig{}); err != nil {
			b.Fatal(err)
		}
	}
}
