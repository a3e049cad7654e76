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
		"YAML, with an anchor and a bare integer": `
metadata: {name: &n web, namespace: default, uid: u1, attempt: 1}
log_directory: /tmp/logs
hostname: null
port_mappings:
- protocol: udp
  containerPort: 80
  hostPort: 8080
labels:
  app: *n
linux:
  security_context:
    namespace_options: {network: node}
    run_as_user: 1000
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
	for _, test := range []struct{ name, text, want, hint string }{
		{"empty", "  \n", "f: the file is empty", ""},
		{"comment only", "# nothing\n", "f: the file is empty", ""},
		{"unknown field", "metadata:\n  name: x\nhostnam: y\n", `f:3:1: unknown field "hostnam" in PodSandboxConfig`, `did you mean "hostname"?`},
		{"unknown field far below", "{\n \"linux\": {\"security_context\": {\n  \"privilegedd\": true}}}", `f:3:3: unknown field "privilegedd" in LinuxSandboxSecurityContext`, `did you mean "privileged"?`},
		{"twice", "hostname: a\nhostname: b\n", `f:2:1: field "hostname" is there twice, first in line 1`, ""},
		{"twice in two spellings", "log_directory: a\nlogDirectory: b\n", `f:2:1: field "logDirectory" is there twice, first in line 1`, ""},
		{"label twice", "labels:\n  a: b\n  a: c\n", `f:3:3: "a" is there twice in labels`, ""},
		{"number for a string", "hostname: 12\n", "f:1:11: hostname must be a string, found the number 12", `put it in quotes: "12"`},
		{"bool for a label", "labels: {a: true}\n", "f:1:13: value must be a string, found true", `put it in quotes: "true"`},
		{"string for a number", "metadata: {attempt: first}\n", `f:1:21: attempt must be a number, found "first"`, ""},
		{"too big", "metadata: {attempt: 4294967296}\n", "f:1:21: attempt: 4294967296 is out of range", ""},
		{"negative", "metadata: {attempt: -1}\n", "f:1:21: attempt: -1 is out of range", ""},
		{"object for a string", "hostname: {}\n", "f:1:11: hostname must be a string, found an object", ""},
		{"string for a list", "port_mappings: all\n", `f:1:16: port_mappings must be a list, found "all"`, ""},
		{"list for an object", "metadata: []\n", "f:1:11: PodSandboxMetadata must be an object, found a list", ""},
		{"unknown enum name", "port_mappings: [{protocol: TPC}]\n", `f:1:28: protocol must be one of TCP, UDP, SCTP, found "TPC"`, `did you mean "TCP"?`},
		{"unknown enum number", "port_mappings: [{protocol: 9}]\n", "f:1:28: protocol must be one of TCP, UDP, SCTP, found the number 9", ""},
		{"two documents", "hostname: a\n---\nhostname: b\n", "f:3:1: must be one document, found a second", ""},
		{"malformed JSON", "{\n  \"hostname\": \"a\",\n  \"labels\": {\"a\" \"b\"}\n}", `f:3:18: malformed JSON: invalid character '"' after object key`, ""},
		{"JSON cut off", "{\"hostname\": \"a\"", "f:1:16: malformed JSON: unexpected end of JSON input", ""},
		{"malformed YAML", "hostname: a\n  labels: [\n", "f:2: malformed YAML: mapping values are not allowed in this context", ""},
		{"a scalar alone", "hello\n", `f:1:1: PodSandboxConfig must be an object, found "hello"`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := decode("f", []byte(test.text), &runtimeapi.PodSandboxConfig{})
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != test.want {
				t.Errorf("error is\n%s\nwant\n%s", err, test.want)
			}
			hint := ""
			if h, ok := err.(interface{ Hint() string }); ok {
				hint = h.Hint()
			}
			if hint != test.hint {
				t.Errorf("hint is %q, want %q", hint, test.hint)
			}
		})
	}
}

func TestDecodeContainer(t *testing.T) {
	text := `
metadata: {name: c}
image: {image: busybox}
envs:
- {key: A, value: "1"}
mounts:
- {container_path: /x, host_path: /y, propagation: HOST_TO_CONTAINER}
- {container_path: /z, host_path: /y, propagation: PROPAGATION_BIDIRECTIONAL}
stop_signal: sigterm
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

// What Encode writes is what Decode reads.
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
	if len(docs) != 2 || !docs[0].Has("logDirectory") || docs[0].Has("image") || !docs[1].Has("image") {
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
