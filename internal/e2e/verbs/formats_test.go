package verbs

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// formatsOf are the reading verbs, each with a jsonpath into its document.
var formatsOf = map[string]string{
	"version": "{.runtimeName}", "info": "{.status.conditions[*].type}", "runtime-config": "{.linux}", "imagefsinfo": "{..usedBytes.value}",
	"images": "{.images[*].size}", "inspecti busybox": "{.status.repoTags[0]}", "pods": "{.items[*].metadata.name}",
	"inspectp web": "{.status.state}", "inspectp web db": "{[*].status.metadata.name}", "ps -a": "{.containers[*].state}",
	"inspect migrate": "{.status.exitCode}", "inspect web db/migrate": "{[*].status.id}", "inspect --name nosuch": "{@}",
	"stats -a": "{.stats[*].attributes.id}", "statsp": "{.stats[*].linux.memory.workingSetBytes.value}",
	"metricdescs": "{.descriptors[*].name}", "metricsp": "{.podMetrics[*].podSandboxId}", "config": "{.settings[*].key}",
	"pods --name nosuch": "{.items}", "ps --name nosuch": "{.containers}", "images nosuch": "{.images}",
}

// crictlsTables are the verbs that print tables in crictl, which look different.
var crictlsTables = regexp.MustCompile(`^(ps|pods|images|stats|statsp|config)\b`)

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// TestFormats compares every format of every reading verb with a golden file,
// and what is called crictl with that.
func TestFormats(t *testing.T) {
	for line, path := range formatsOf {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			c := withStub(t, stubcri.Options{})
			seedNode(c.stub)
			var all strings.Builder
			for _, format := range []string{"", "table", "wide", "json", "jsonl", "yaml", "name", "go-template={{json .}}", "jsonpath=" + path} {
				args := strings.Fields(line)
				if format != "" {
					args = append(args, "-o", format)
				}
				r := c.run(args...)
				fmt.Fprintf(&all, "== %s ==\n%s", cmp.Or(format, "no format"), r.out)
				if r.code != 0 || r.err != "" {
					t.Errorf("-o %s: exit %d, stderr %q", format, r.code, r.err)
				}
				if format == "" && crictlsTables.MatchString(line) || format == "table" || format == "wide" || strings.HasPrefix(line, "inspect --name") {
					continue // crictl's own: TestCompatStats, TestTextsOfCrictl, TestSuiteOfCrictl
				}
				out := r.out
				if line == "version" { // crictl's has nothing of its own version
					out = strings.TrimPrefix(out, "crishim:  v0.0.0-test\n")
				}
				c.runAs(t.Context(), "crictl", args...).want(t, r.code, out, r.err)
			}
			test.Golden(t, "formats-"+strings.Trim(notInNames.ReplaceAllString(line, "-"), "-"), all.String())
		})
	}
}
