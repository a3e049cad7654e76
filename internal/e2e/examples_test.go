package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/test"
)

func exampleFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("examples", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// exampleChecks run each example as far as it goes without a runtime; %s is the file.
var exampleChecks = map[string]struct{ line, want string }{
	"examples/web.yaml":               {"crishim apply --dry-run %s", `"podSandboxId"`},
	"examples/job.yaml":               {"crishim apply --dry-run %s", `"podSandboxId"`},
	"examples/static-pods/clock.yaml": {"crishim apply --dry-run %s", `"podSandboxId"`},
	"examples/static-pods/files.yaml": {"crishim apply --dry-run %s", `"podSandboxId"`},
	"examples/cri/pod.yaml":           {"crishim runp --dry-run %s", `"uid": "examples-web"`},
	"examples/cri/container.yaml":     {"crishim create --dry-run web %s examples/cri/pod.yaml", `"sandbox_config"`},
	// All of it is read before a wrong flag is.
	"examples/kubeadm/serve.yaml": {"! crishim serve --config-file %s --listen nowhere:// 2>&1", `invalid --listen "nowhere://"`},
	"examples/k3s/serve.yaml":     {"! crishim serve --config-file %s --listen nowhere:// 2>&1", `invalid --listen "nowhere://"`},
	"examples/ssh/crictl.yaml":    {"crishim --config %s config --get runtime-endpoint", "ssh://root@node1.example.com/run/containerd/containerd.sock"},
	// Files of other programs.
	"examples/kubeadm/kubeadm.yaml": {"grep criSocket %s", "unix:///run/crishim/crishim.sock"},
	"examples/k3s/config.yaml":      {"cat %s", "\ncontainer-runtime-endpoint: unix:///run/crishim/crishim.sock\n"},
	"examples/ci/images.yaml":       {"cat %s", "run: crishim inspecti "},
}

func TestExamplesAreRead(t *testing.T) {
	t.Parallel()
	u, index := newUser(t, ""), test.Page(t, "examples/README.md")
	for _, file := range exampleFiles(t) {
		u.write(file, test.Page(t, file))
	}
	for _, file := range exampleFiles(t) {
		if file == "examples/README.md" {
			continue
		}
		for document := range strings.SplitSeq(test.Page(t, file), "\n---\n") {
			var any map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &any); err != nil || len(any) == 0 {
				t.Errorf("%s: %v", file, err)
			}
		}
		check, ok := exampleChecks[file]
		if !ok {
			t.Errorf("%s is in no test", file)
			continue
		}
		if out := u.must(fmt.Sprintf(check.line, file)); !strings.Contains(out, check.want) {
			t.Errorf("%s: no %q in\n%s", file, check.want, out)
		}
		if link, dir := strings.TrimPrefix(file, "examples/"), strings.TrimPrefix(filepath.Dir(file), "examples/"); !strings.Contains(index, "("+link+")") && !strings.Contains(index, "("+dir+")") {
			t.Errorf("examples/README.md does not name %s", link)
		}
	}
}

// TestExamplesOnEngine runs the examples that TestReadmeTourOnEngine does not.
func TestExamplesOnEngine(t *testing.T) {
	t.Parallel()
	requireRuntime(t, runtime{name: "docker", endpoint: dockerEndpoint()})
	u, namespace := newUser(t, dockerEndpoint()), fmt.Sprintf("examples%d", os.Getpid())
	u.examplesOf(namespace)
	t.Cleanup(func() {
		u.must("rm examples/static-pods/*; crishim sync --once examples/static-pods")
		u.must("crishim delete -q --grace-period 0 " + namespace + "/job")
	})
	if out := u.must("crishim apply --wait examples/job.yaml"); !strings.Contains(out, "succeeded") {
		t.Errorf("the job: %s", out)
	}
	if out := u.must("crishim logs " + namespace + "/job/add"); out != "6\n" {
		t.Errorf("the job's log: %q", out)
	}
	u.must("crishim sync --once --wait=ready --wait-timeout 1m examples/static-pods")
	for name, command := range map[string]string{"clock": "date", "files": "wget -qO- 127.0.0.1:7000/hostname"} {
		if out := u.must("crishim exec " + namespace + "/" + name + " " + command); out == "" {
			t.Errorf("%s: %s printed nothing", name, command)
		}
	}

	// The CI job succeeds only if all images exist.
	step := regexp.MustCompile(`run: (.*)`).FindStringSubmatch(test.Page(t, "examples/ci/images.yaml"))[1]
	step = strings.ReplaceAll(step, "busybox:1.36", testImage())
	if out, errs, ok := u.run(step); ok || !strings.Contains(errs, "registry.example.com/app:v1") || strings.Contains(errs, testImage()) {
		t.Errorf("%s: %v\n%s%s", step, ok, out, errs)
	}
	u.must(strings.ReplaceAll(step, "registry.example.com/app:v1", testImage()))
}
