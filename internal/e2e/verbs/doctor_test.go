package verbs

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/output"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Unimplemented: []string{"ImageFsInfo"}})
	r := c.run("doctor", "-o", "json")
	var got struct{ Findings []output.Finding }
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("%v in %q", err, r.out)
	}
	states := map[string]string{}
	for _, f := range got.Findings {
		states[f.Check] = f.State
	}
	if states["config file"] != "ok" || states["endpoint "+c.stub.Endpoint] != "ok" || states["image filesystem"] != "fail" {
		t.Errorf("got %v", states)
	}
	if r.code != 1 || !strings.Contains(r.err, "checks failed") {
		t.Errorf("got %d, %q", r.code, r.err)
	}
}

func TestDoctorWithoutRuntime(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t}
	r := c.run("doctor", "--columns", "state,check")
	if r.code != 1 || !strings.Contains(r.out, "fail    runtime") {
		t.Errorf("got %+v", r)
	}
	c.vars = map[string]string{"CRI_CONFIG_FILE": "/nonexistent/x.yaml"}
	if r := c.run("doctor"); r.code != 1 || !strings.Contains(r.out, "/nonexistent/x.yaml") {
		t.Errorf("got %+v", r)
	}
}

// TestDoctorOfInvalidSettings: doctor reports settings that other commands refuse. A bundle does not quote them.
func TestDoctorOfInvalidSettings(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t}
	const seeDoctor = "the settings are invalid: `crishim doctor` shows why"
	broken, none := c.file("shim.yaml", "network-plugin-mtu: planted\n"), "/nonexistent/planted.yaml"
	for name, tt := range map[string]struct {
		vars       map[string]string
		want, dump string
	}{
		"a broken file":     {map[string]string{"CRISHIM_SHIM_CONFIG": broken}, "network-plugin-mtu: cannot unmarshal !!str `planted` into int", seeDoctor},
		"no file":           {map[string]string{"CRISHIM_SHIM_CONFIG": none}, none, seeDoctor},
		"an unknown plugin": {map[string]string{"CRISHIM_NETWORK_PLUGIN": "planted"}, "invalid CRISHIM_NETWORK_PLUGIN \"planted\"", seeDoctor},
		"no pod CIDR":       {map[string]string{"CRISHIM_NETWORK_PLUGIN": "kubenet"}, "needs the pod CIDR", seeDoctor},
		"the config file":   {map[string]string{"CRI_CONFIG_FILE": c.file("crictl.yaml", "runtime-endpoint: ssh://u:planted@h\n")}, "must not contain a password", seeDoctor},
		"the endpoint":      {map[string]string{"CONTAINER_RUNTIME_ENDPOINT": "ssh://u:planted@h"}, "must not contain a password", `invalid endpoint \"ssh://u:***@h\"`},
	} {
		c := &commandTest{t: t, vars: tt.vars}
		if r := c.run("doctor", "--columns", "state,detail"); r.code != 1 || !strings.Contains(r.out, "fail    ") || !strings.Contains(r.out, tt.want) {
			t.Errorf("%s: doctor: got %+v", name, r)
		}
		r := c.run("dump", "-o", "-")
		document := unpacked(t, []byte(r.out))["bundle.json"]
		if r.code != 0 || !strings.Contains(document, tt.dump) || strings.Contains(document, "planted") {
			t.Errorf("%s: dump: got code %d, %s, %.600s", name, r.code, r.err, document)
		}
	}
}

// TestDoctorOmitsWhatIsEmpty: doctor writes no separator if the text before or after it is empty.
func TestDoctorOmitsWhatIsEmpty(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := &commandTest{t: t}
	r := c.run("--connect-timeout", "100ms", "-r", "unix://"+socket, "doctor", "--columns", "check,detail", "-o", "json")
	if !strings.Contains(r.out, `"detail": "hangs, no answer"`) {
		t.Errorf("got %+v", r)
	}
	for _, condition := range []struct{ reason, message, want string }{
		{"", "it broke", "it broke"}, {"Broken", "", "Broken"}, {"Broken", "it broke", "Broken: it broke"}, {"", "", "the runtime gives no reason"},
	} {
		c := withStub(t, stubcri.Options{Change: func(answer proto.Message) {
			if s, ok := answer.(*runtimeapi.StatusResponse); ok {
				s.Status.Conditions = []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Reason: condition.reason, Message: condition.message}}
			}
		}})
		if r := c.run("doctor", "-o", "json"); !strings.Contains(r.out, `"detail": "`+condition.want+`"`) {
			t.Errorf("%+v: got %+v", condition, r)
		}
	}
}

// TestContextWithoutAddress: errors, doctor and endpoints say that the docker context lacks an address.
func TestContextWithoutAddress(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	meta := filepath.Join(config, "contexts", "meta", fmt.Sprintf("%x", sha256.Sum256([]byte("far"))), "meta.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(meta), 0o700), os.WriteFile(meta, []byte(`{"Name":"far","Endpoints":{"docker":{}}}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	c := &commandTest{t: t, vars: map[string]string{"DOCKER_CONFIG": config, "DOCKER_CONTEXT": "far"}}
	const name, reason = `Docker, from DOCKER_CONTEXT "far"`, `docker context "far" has no address of a Docker engine`
	c.run("-r", "docker://", "ps").want(t, 1, "", "crishim: no Docker engine found:\n  docker:// ("+name+"): "+reason+"\nhint: start Docker, set DOCKER_HOST, or name its socket with `-r docker:///path`\n")
	for _, verb := range []string{"doctor", "endpoints"} {
		r := c.run("-r", "docker://", verb, "-o", "jsonl")
		if encoded := strings.ReplaceAll(reason, `"`, `\"`); !strings.Contains(r.out, "docker://") || !strings.Contains(r.out, encoded) {
			t.Errorf("%s: got %+v", verb, r)
		}
	}
}
