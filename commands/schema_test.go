package commands

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestSchema: what each verb prints with -o json is what its schema says, and would not pass
// without its first key.
func TestSchema(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	lines := []string{"endpoints", "doctor", "describe web", "why web", "who 1", "df -v --cni-dir /nonexistent"}
	for line := range formatsOf {
		lines = append(lines, line)
	}
	named := map[string]bool{"apply": true, "events": true, "history": true} // which print what others do: a Pod, a message, an image's steps
	for _, line := range lines {
		verb := strings.Fields(line)[0]
		named[verb] = true
		compiled := compiledSchema(t, c, verb)
		r := c.run(append(strings.Fields(line), "-o", "json")...)
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(r.out))
		if err != nil {
			t.Fatalf("%s: %v in %q", line, err, r.out)
		}
		if err := compiled.Validate(document); err != nil {
			t.Errorf("%s: %v\n%s", line, err, r.out)
		}
		if err := compiled.Validate(map[string]any{}); err == nil && verb != "runtime-config" { // nothing is known of other systems
			t.Errorf("%s: the schema takes an empty object", line)
		}
	}
	for verb := range strings.Lines(c.run("schema").out) {
		if !named[strings.TrimSpace(verb)] {
			t.Errorf("nothing checks the schema of %s", verb)
		}
	}
	if r := c.run("schema", "nosuch"); r.code != 2 || !strings.Contains(r.err, "must be apply, config,") {
		t.Errorf("an unknown command: exit %d, %q", r.code, r.err)
	}
}

func compiledSchema(t *testing.T, c *commandTest, verb string) *jsonschema.Schema {
	t.Helper()
	var schema any
	r := c.run("schema", verb)
	if err := json.Unmarshal([]byte(r.out), &schema); err != nil {
		t.Fatalf("schema %s: %v in %q%s", verb, err, r.out, r.err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatalf("schema %s: %v", verb, err)
	}
	return compiled
}
