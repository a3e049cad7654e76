package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// typed returns the commands in the blocks of a section of README.md, without what is said behind them.
func typed(t *testing.T, section string) (lines []string) {
	t.Helper()
	_, text, ok := strings.Cut(page(t, "README.md"), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^    (.+?)(?: +# .*)?$`).FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// examplesOf copies examples to the user's directory, with the pods in the namespace and the image of the tests.
func (u *user) examplesOf(namespace string, also ...string) {
	u.t.Helper()
	change := strings.NewReplacer(append([]string{"namespace: examples", "namespace: " + namespace, "busybox:1.36", testImage(), "uid: examples-", "uid: " + namespace + "-"}, also...)...)
	for _, file := range exampleFiles(u.t) {
		u.write(file, change.Replace(page(u.t, file)))
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
	for _, line := range typed(t, "A short tour") {
		verb, _, _ := strings.Cut(strings.TrimPrefix(line, "crishim "), " ")
		if slices.Contains([]string{"pull", "port-forward", "debug", "serve"}, verb) || strings.Contains(line, " -it ") || strings.Contains(line, " -f --tail ") {
			if !strings.Contains(page(t, "docs/commands/"+verb+".md"), "\n    "+strings.TrimSuffix(line, ":1.36")+"\n") {
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

// TestReadmeInstallNamesWhatExists checks the files and the version of the release, the build tags and the targets.
func TestReadmeInstallNamesWhatExists(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^## v(\S+)$`).FindStringSubmatch(page(t, "CHANGELOG.md"))
	name := regexp.MustCompile(`(?m)^name: (\S+)$`).FindStringSubmatch(page(t, "packaging/nfpm.yaml"))
	if version == nil || name == nil {
		t.Fatal("CHANGELOG.md or packaging/nfpm.yaml names no version or package")
	}
	v := version[1]
	dist := map[string]bool{
		name[1] + "_" + v + "_amd64.deb": true, name[1] + "-" + v + "-1.x86_64.rpm": true,
		"crishim-v" + v + "-linux-amd64.tar.gz": true, "crishim-v" + v + "-linux-amd64-image.tar": true,
		"kubectl-crishim-v" + v + "-linux-amd64.tar.gz": true,
	}
	text := strings.Join(append(typed(t, "Install"), typed(t, "Try it")...), "\n") + "\n"
	for _, file := range regexp.MustCompile(`(?:kubectl-)?crishim[-_]v?[0-9]\S+`).FindAllString(text, -1) {
		if !dist[file] {
			t.Errorf("README.md names %s, which make dist does not make", file)
		}
		delete(dist, file)
	}
	for file := range dist {
		t.Errorf("README.md does not name %s", file)
	}
	if want := "run --rm -v /run:/run crishim:v" + v + " ps"; !strings.Contains(text, want) {
		t.Errorf("README.md does not have %q", want)
	}
	if want := "go install -tags " + strings.TrimSpace(page(t, "hack/tags")) + " " + module + "@latest"; !strings.Contains(text, want+"\n") {
		t.Errorf("README.md does not have %q", want)
	}
	if regexp.MustCompile(`(?m)^replace `).MatchString(page(t, "go.mod")) {
		t.Error("go install refuses a module with replace in go.mod")
	}
	for _, m := range regexp.MustCompile(`(?m)^make ([a-z-]+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(page(t, "Makefile"), "\n"+m[1]+":") {
			t.Errorf("the Makefile has no target %s", m[1])
		}
	}
}

// TestLinksExist checks the files that pages link to.
func TestLinksExist(t *testing.T) {
	t.Parallel()
	for _, name := range append(pages(t), "examples/README.md", "docs/commands/README.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(page(t, name), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
