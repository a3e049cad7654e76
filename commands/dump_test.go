package commands

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// plantedKey is a serving key as a runtime's inspect may have it.
const plantedKey = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPLANTEDpemPLANTEDpemPLANTEDpemPLANTEDpem\nAwEHoUQDQgPLANTEDpemPLANTEDpemPLANTEDpem==\n-----END EC PRIVATE KEY-----"

// plantedNode has a secret in each place that one may be in. Each has "planted" in it, in some case.
func plantedNode(t *testing.T) *commandTest {
	t.Helper()
	spec, err := json.Marshal(map[string]any{
		"pid": 1, "runtimeSpec": map[string]any{
			"process": map[string]any{"env": []string{"A=planted-variable", "PLAIN="}, "args": []string{"app", "--password=planted-argument", "-p", "planted-short", "--url=http://u:planted-url@h/"}},
			"hooks":   map[string]any{"prestart": []any{map[string]any{"env": []string{"B=planted-hook"}}}},
		},
		"config": map[string]any{"envs": []any{map[string]any{"key": "C", "value": "planted-other"}}},
		"tls":    map[string]any{"servingKey": plantedKey, "clientKeyData": base64.StdEncoding.EncodeToString([]byte(plantedKey))},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := withStub(t, stubcri.Options{
		Info: map[string]string{
			"engine": `{"HttpProxy":"http://me:planted-proxy@proxy:3128","Labels":["token=planted-label"]}`,
			"config": `{"registry":{"configs":{"r":{"auth":{"username":"planted-user","password":"planted-registry"}}},"headers":{"X-Meta":["planted-header"]}}}`,
		},
		Change: func(answer proto.Message) {
			if r, ok := answer.(*runtimeapi.ContainerStatusResponse); ok && r.Info != nil {
				r.Info["info"] = string(spec)
			}
		},
	})
	web := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) {
		p.LogDirectory = t.TempDir()
		p.Labels = map[string]string{"app": "web", "session-token": "planted-pod-label"}
		p.Annotations = map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": `{"spec":{"containers":[{"env":[{"name":"X","value":"planted-applied"}]}]}}`,
			"team": "blue",
		}
	})
	app := c.stub.AddContainer(web, "app", func(o *runtimeapi.ContainerConfig) {
		o.LogPath = "app.log"
		o.Labels = map[string]string{"api-key": "planted-label-1"}
		o.Annotations = map[string]string{"example.com/db-password": "planted-annotation"}
		o.Mounts = []*runtimeapi.Mount{{HostPath: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/planted-mount", ContainerPath: "/s"}}
	})
	for _, line := range []string{
		"starting with planted-variable and planted-other in base64 " + base64.StdEncoding.EncodeToString([]byte("planted-other")),
		"pull: 401 Authorization: Bearer PLANTEDbearerPLANTED",
		"GET https://r/v2/?token=planted-pull&X-Amz-Signature=planted-signature",
		"eyJwbGFudGVk.eyJwbGFudGVkIjoi.cGxhbnRlZA", `{"level":"info","password":"planted-json"}`,
		`level=error msg="login failed: password=planted-logfmt, again"`, "\x1b[36mtoken\x1b[0m=planted-coloured",
		"Unhandled Error: &Container{Env:[]EnvVar{EnvVar{Name:MODE,Value:planted-kubelet,ValueFrom:nil,},},}",
		// Another key than in the configuration: it is known from the log alone, which why has the end of.
		"-----BEGIN EC PRIVATE KEY-----", "MHcCAQEEIPLANTEDlogPLANTEDlogPLANTEDlogPLANTEDlog", "-----END EC PRIVATE KEY-----", "the last line",
	} {
		c.stub.Log(app, "stdout", line)
	}
	c.stub.Exit(app, 3)
	return c
}

// unpacked are the files of a bundle, without the directory that they are in.
func unpacked(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Mode&0o077 != 0 {
			t.Fatalf("%s: mode %o, %v", h.Name, h.Mode, err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}

// TestDumpHasNoSecrets: nothing that was planted is anywhere in the bundle, and the rest is.
func TestDumpHasNoSecrets(t *testing.T) {
	t.Parallel()
	c := plantedNode(t)
	c.vars["CRI_CONFIG_FILE"] = c.file("crictl.yaml", "runtime-endpoint: "+c.stub.Endpoint+"\n# password: planted-config\n")
	path := filepath.Join(t.TempDir(), "d.tar.gz")
	r := c.run("dump", "-o", path)
	if r.code != 0 || r.out != path+"\n" || !strings.Contains(r.err, "values were removed") {
		t.Fatalf("got %+v", r)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, archive)
	for name, text := range files {
		for _, planted := range []string{"planted", "cGxhbnRl", "eyJwbGFudGVk", "UExBTlRFR"} {
			if at := strings.Index(strings.ToLower(text), strings.ToLower(planted)); at >= 0 {
				t.Errorf("%s: ...%q...", name, text[max(0, at-80):min(len(text), at+60)])
			}
		}
	}
	for name, want := range map[string]string{
		"index.html": "web/app", "pods.json": `"team": "blue"`, "containers.json": "CONTAINER_EXITED", "info.json": "proxy:3128", "removed.json": "environment value",
		"stats.json": `"stats"`, "doctor.json": "findings", "endpoints.json": "stubcri", "version.json": "v0.0.0-test", "host/uname.json": "release", "parts.json": `"part": "journal"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q: %.2000s", name, want, files[name])
		}
	}
	logs := ""
	for name, text := range files {
		if strings.HasPrefix(name, "logs/") {
			logs += text
		}
	}
	if !strings.Contains(logs, "the last line") || strings.Count(logs, "[removed]") < 6 {
		t.Errorf("the log: %s", logs)
	}
	page := files["index.html"]
	for _, bad := range []string{"<script", "javascript:", "src=", "http-equiv=\"refresh", "onload"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
}

// TestDumpOfHostileNames: what a node's names and logs have of HTML is text on the page.
func TestDumpOfHostileNames(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	const hostile = `</pre></title></style><script>alert(1)</script>"'><img src=x onerror=y>`
	pod := c.stub.AddPod("default", "web"+hostile, func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	id := c.stub.AddContainer(pod, "app", func(o *runtimeapi.ContainerConfig) { o.LogPath = "app.log" })
	c.stub.Log(id, "stdout", hostile+"\x1b[2J\x00")
	c.stub.Exit(id, 1)
	r := c.run("dump", "--logs", "all", "-o", "-")
	if r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	page := unpacked(t, []byte(r.out))["index.html"]
	if strings.Contains(page, "<script") || strings.Contains(page, "<img") || strings.Count(page, "</style>") != 1 || strings.Count(page, "&lt;script&gt;") < 3 {
		t.Errorf("the page: %s", page)
	}
}

// TestDumpChoosesLogs by how containers are.
func TestDumpChoosesLogs(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	add := func(name string) string {
		id := c.stub.AddContainer(pod, name, func(o *runtimeapi.ContainerConfig) { o.LogPath = name + ".log" })
		c.stub.Log(id, "stdout", "first of "+name)
		c.stub.Log(id, "stderr", "last of "+name)
		return id
	}
	add("well")
	c.stub.Exit(add("done"), 0)
	c.stub.Exit(add("bad"), 1)
	for line, want := range map[string]string{"--logs none": "", "--tail 1": "bad", "--logs all --tail 1": "bad done well"} {
		r := c.run(append([]string{"dump", "-o", "-"}, strings.Fields(line)...)...)
		files := unpacked(t, []byte(r.out))
		for _, name := range []string{"bad", "done", "well"} {
			has := false
			for file, text := range files {
				if strings.HasPrefix(file, "logs/") && strings.Contains(text, "last of "+name) {
					has = true
				}
				if strings.HasPrefix(file, "logs/") && strings.Contains(text, "first of ") {
					t.Errorf("%s: %s has more than a line", line, file)
				}
			}
			if has != strings.Contains(want, name) {
				t.Errorf("%s: log of %s: %v; %+v", line, name, has, r.err)
			}
		}
	}
}

// TestDumpWithoutARuntime: there is a bundle all the same, which says why it has so little.
func TestDumpWithoutARuntime(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t, vars: map[string]string{}}
	r := c.run("dump", "-o", "-")
	if r.code != 0 || !strings.Contains(r.err, "warning: ") {
		t.Fatalf("got code %d, %s", r.code, r.err)
	}
	files := unpacked(t, []byte(r.out))
	if !strings.Contains(files["parts.json"], "/nonexistent/test.sock") || !strings.Contains(files["index.html"], "/nonexistent/test.sock") || files["host/uname.json"] == "" {
		t.Errorf("it does not say why: %s", files["parts.json"])
	}
}

// TestDumpThatIsInterrupted leaves nothing.
func TestDumpThatIsInterrupted(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.stub.Before("ListContainers", func(call context.Context) {
		cancel()
		<-call.Done()
	})
	dir := t.TempDir()
	r := c.runAs(ctx, "crishim", "dump", "-o", filepath.Join(dir, "x"))
	if left, err := os.ReadDir(dir); r.code == 0 || r.out != "" || err != nil || len(left) > 0 {
		t.Errorf("got %+v, left %v, %v", r, left, err)
	}
}
