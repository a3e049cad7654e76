package commands

import (
	"encoding/json"
	"strings"
	"testing"

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
