package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// TestReadmeInstallNamesWhatExists checks the files and the version of the release, the build tags and the targets.
func TestReadmeInstallNamesWhatExists(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^## v(\S+)$`).FindStringSubmatch(test.Page(t, "CHANGELOG.md"))
	name := regexp.MustCompile(`(?m)^name: (\S+)$`).FindStringSubmatch(test.Page(t, "packaging/nfpm.yaml"))
	if version == nil || name == nil {
		t.Fatal("CHANGELOG.md or packaging/nfpm.yaml names no version or package")
	}
	v := version[1]
	dist := map[string]bool{
		name[1] + "_" + v + "_amd64.deb": true, name[1] + "-" + v + "-1.x86_64.rpm": true,
		"crishim-v" + v + "-linux-amd64.tar.gz": true, "crishim-v" + v + "-linux-amd64-image.tar": true,
		"kubectl-crishim-v" + v + "-linux-amd64.tar.gz": true,
	}
	text := strings.Join(append(test.Typed(t, "Install"), test.Typed(t, "Try it")...), "\n") + "\n"
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
	if want := "go install -tags " + strings.TrimSpace(test.Page(t, "hack/tags")) + " " + module + "@latest"; !strings.Contains(text, want+"\n") {
		t.Errorf("README.md does not have %q", want)
	}
	if regexp.MustCompile(`(?m)^replace `).MatchString(test.Page(t, "go.mod")) {
		t.Error("go install refuses a module with replace in go.mod")
	}
	for _, m := range regexp.MustCompile(`(?m)^make ([a-z-]+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(test.Page(t, "Makefile"), "\n"+m[1]+":") {
			t.Errorf("the Makefile has no target %s", m[1])
		}
	}
}

// TestLinksExist checks the files that pages link to.
func TestLinksExist(t *testing.T) {
	t.Parallel()
	for _, name := range append(pages(t), "examples/README.md", "docs/commands/README.md") {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(test.Page(t, name), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
