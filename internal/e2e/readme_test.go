package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// examplesOf copies examples to the user's directory, with the pods in the namespace and the image of the tests.
func (u *user) examplesOf(namespace string, also ...string) {
	u.t.Helper()
	change := strings.NewReplacer(append([]string{"namespace: examples", "namespace: " + namespace, "busybox:1.36", testImage(), "uid: examples-", "uid: " + namespace + "-"}, also...)...)
	for _, file := range exampleFiles(u.t) {
		u.write(file, change.Replace(test.Page(u.t, file)))
	}
}

// TestReadmeTourOnEngine runs the commands of the tour in order. TestHelpExamplesOnEngine covers the commands that need a
// terminal or a registry.
func TestReadmeTourOnEngine(t *testing.T) {
	t.Parallel()
	requireRuntime(t, runtime{name: "docker", endpoint: dockerEndpoint()})
	u := newUser(t, dockerEndpoint())
	web := fmt.Sprintf("web%d", os.Getpid())
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	change := []string{"web.yaml", "web.yaml", "web", web, "8080", strconv.Itoa(port)}
	u.examplesOf(web, change...)
	t.Cleanup(func() {
		_, _, _ = u.run("crishim delete -q --grace-period 0 " + web) // where the tour did not get there
		_, _, _ = u.run("crishim rmp -f " + web)
	})
	outputs := map[string]string{}
	for _, line := range test.Typed(t, "A short tour") {
		verb, _, _ := strings.Cut(strings.TrimPrefix(line, "crishim "), " ")
		if slices.Contains([]string{"pull", "port-forward", "debug", "serve"}, verb) || strings.Contains(line, " -it ") || strings.Contains(line, " -f --tail ") {
			if !strings.Contains(test.Page(t, "docs/commands/"+verb+".md"), "\n    "+strings.TrimSuffix(line, ":1.36")+"\n") {
				t.Errorf("%s is not run: no example in the help of %s", line, verb)
			}
			continue
		}
		switch verb {
		case "logs":
			u.must("until crishim logs " + web + " | grep ready; do sleep 0.1; done")
		case "describe": // which asks the probe once: an answer can take too long on a busy machine
			u.must("until crishim describe " + web + " | grep 1/1; do sleep 0.1; done")
		}
		outputs[verb] += u.must(strings.NewReplacer(change...).Replace(line))
	}
	for verb, want := range map[string]string{
		"endpoints": "docker", "apply": "ready, address", "pods": web, "ps": "httpd", "describe": "Running, 1/1 ready",
		"exec": "served from a pod", "logs": "ready", "inspect": "CONTAINER_RUNNING", "rmp": "Removed sandbox",
	} {
		if !strings.Contains(outputs[verb], want) {
			t.Errorf("%s: no %q in\n%s", verb, want, outputs[verb])
		}
	}
}
