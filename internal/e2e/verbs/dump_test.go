package verbs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/kuberuntime/pod"
)

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

// TestDump writes what is on the list, the log of what is unhealthy as it is, and nothing else.
func TestDump(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Change: func(answer proto.Message) {
		if r, ok := answer.(*runtimeapi.ContainerStatusResponse); ok && r.Info != nil {
			r.Info["info"] = `{"runtimeSpec":{"process":{"args":["app","--passcode=planted"],"env":["PASSCODE=planted"]}}}`
		}
	}})
	web := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) {
		p.LogDirectory = t.TempDir()
		p.Annotations = map[string]string{"example.com/note": "planted"}
	})
	app := c.stub.AddContainer(web, "app", func(o *runtimeapi.ContainerConfig) { o.LogPath = "app.log" })
	c.stub.Log(app, "stdout", "mkdir -p /x: token=logged: denied")
	c.stub.Exit(app, 3)
	c.vars["CRI_CONFIG_FILE"] = c.file("crictl.yaml", "runtime-endpoint: "+c.stub.Endpoint+"\n# planted\n")
	path := filepath.Join(t.TempDir(), "d.tar.gz")
	for _, kept := range []struct {
		flags, said string
		planted     int
	}{
		{"", "logs hold whatever containers print", 0},
		{"--logs none", "no logs are in it", 0},
		{"--keep-args --keep-env --keep-config --logs all", "added: whole configuration files (--keep-config)", 3},
	} {
		r := c.run(append([]string{"dump", "-o", path}, strings.Fields(kept.flags)...)...)
		if r.code != 0 || r.out != path+"\n" || !strings.Contains(r.err, kept.said) {
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
		document, page, logs := files["bundle.json"], files["index.html"], ""
		delete(files, "index.html") // which has the same again
		planted := 0
		for name, text := range files {
			planted += strings.Count(text, "planted")
			if strings.HasPrefix(name, "logs/") {
				logs += text
			}
		}
		if planted != kept.planted || strings.Contains(logs, "stdout mkdir -p /x: token=logged: denied\n") != (kept.flags != "--logs none") {
			t.Errorf("%s: %d planted, log %q", kept.flags, planted, logs)
		}
		for _, want := range []string{`"Command": "app"`, `"state": "SANDBOX_READY"`, `"attempt": 0`, `"MoreArguments": 1`, `"PASSCODE`, `"example.com/note": ""`, `"runtime-endpoint": "unix://`, `"Part": "configuration"`, `"Code": "exited"`, `"/proc/sys/kernel/osrelease": "`} {
			if !strings.Contains(document, want) {
				t.Errorf("%s: the document has no %s: %.4000s", kept.flags, want, document)
			}
		}
		if !strings.Contains(page, "default/web/app") || !strings.Contains(page, "<td>SANDBOX_READY</td><td>0</td>") || strings.Contains(page, "<script") || strings.Contains(page, "(--keep-env)") != (kept.planted > 0) {
			t.Errorf("%s: the page: %.2000s", kept.flags, page)
		}
	}
}

// TestOutputIsCreated: what is there and no file may be another user's, and is not opened.
func TestOutputIsCreated(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"dump -o " + pipe, "save -o " + pipe + " busybox", "--profile-mem " + pipe + " version", "--profile-cpu " + pipe + " version"} {
		if r := c.run(strings.Fields(line)...); r.code == 0 || !strings.Contains(r.err, pipe+" is there and is no regular file") {
			t.Errorf("%s: got %+v", line, r)
		}
	}
}

// TestDumpQuotesNobody plants a secret in what containers and probes say: it is in a bundle with --logs all alone. The errors of the
// runtime and of registries are in each.
func TestDumpQuotesNobody(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	says := c.file("message", "planted by the container")
	const uid = "6f1e3f3c-9a44-4b4e-8a0c-27b5f2e0f7a1"
	web := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.Metadata.Uid = uid })
	app := c.stub.AddContainer(web, "app", func(o *runtimeapi.ContainerConfig) {
		o.Annotations = map[string]string{pod.MessagePathAnnotation: "/dev/termination-log"}
		o.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: says}}
	})
	c.stub.Exit(app, 3)
	record := func(uid, events string) {
		t.Helper()
		at := filepath.Join(c.vars["CRISHIM_ROOT"], "pods", uid, "events.jsonl")
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(events), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	event := func(text string) string {
		return fmt.Sprintf(`{"time":%q,"namespace":"default",%s}`+"\n", time.Now().Format(time.RFC3339), text)
	}
	record(uid, event(`"pod":"web","uid":"`+uid+`","container":"app","warning":true,"reason":"Unhealthy","message":"planted by a probe"`)+
		event(`"pod":"web","uid":"`+uid+`","container":"next","warning":true,"reason":"FailedPostStartHook","waiting":"PostStartHookError","message":"planted by a hook"`))
	for line, want := range map[string]bool{"": false, "--logs none": false, "--logs all": true} {
		files := unpacked(t, []byte(c.run(append([]string{"dump", "-o", "-"}, strings.Fields(line)...)...).out))
		document := files["bundle.json"]
		if !strings.Contains(document, `"Code": "exited"`) || !strings.Contains(document, `"Reason": "Unhealthy"`) {
			t.Fatalf("%s: %s", line, document)
		}
		for _, text := range []string{"planted by the container", "planted by a probe", "planted by a hook"} {
			if got := strings.Contains(document, text) && strings.Contains(files["index.html"], text); got != want || !want && strings.Contains(document+files["index.html"], "planted") {
				t.Errorf("%q: %s: %v", line, text, got)
			}
		}
		if !strings.Contains(files["index.html"], "may quote a container or a manifest are in it with <code>--logs all</code> only") {
			t.Error("the page does not say so")
		}
	}
}

// TestOutputFollowsNoLink: a link in the way is replaced, and the file that it leads to stays.
func TestOutputFollowsNoLink(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	dir := t.TempDir()
	other, link := c.file("other", "another user's"), filepath.Join(dir, "x")
	temporary := filepath.Join(dir, fmt.Sprintf(".x-%d", os.Getpid())) // whose name can be known before
	for _, at := range []string{link, temporary} {
		if err := os.Symlink(other, at); err != nil {
			t.Fatal(err)
		}
		r := c.run("dump", "-o", link)
		if text, err := os.ReadFile(other); err != nil || string(text) != "another user's" {
			t.Errorf("the file behind %s: %.40q, %v", at, text, err)
		}
		if info, err := os.Lstat(link); (r.code == 0) != (at == link) || err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %+v, %v, %v", at, r, info, err)
		}
	}
}

// TestDumpOfHostileNames: what a node's names and logs have of HTML is text on the page.
func TestDumpOfHostileNames(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	const hostile = `</pre></title></style><script>alert(1)</script>"'><img src=x onerror=y>`
	web := c.stub.AddPod("default", "web"+hostile, func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	id := c.stub.AddContainer(web, "app", func(o *runtimeapi.ContainerConfig) { o.LogPath = "app.log" })
	c.stub.Log(id, "stdout", hostile+"\x1b[2J\x00")
	c.stub.Exit(id, 1)
	r := c.run("dump", "--logs", "all", "-o", "-")
	if r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	page := unpacked(t, []byte(r.out))["index.html"]
	if strings.Contains(page, "<script") || strings.Contains(page, "<img") || strings.Count(page, "</style>") != 1 || strings.Count(page, "&lt;script&gt;") < 2 {
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
	if !strings.Contains(files["bundle.json"], "/nonexistent/test.sock") || !strings.Contains(files["index.html"], "/nonexistent/test.sock") {
		t.Errorf("it does not say why: %s", files["bundle.json"])
	}
}

// TestDumpShowsListsAsLines: an error with a list has a line for each element on the screen and on the page.
func TestDumpShowsListsAsLines(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t, vars: map[string]string{"DOCKER_HOST": "unix:///nonexistent/docker.sock"}, terminal: true}
	file := filepath.Join(t.TempDir(), "x")
	r := c.run("-r", "docker://", "dump", "-o", file)
	const list = "no Docker engine found:\n  unix:///nonexistent/docker.sock (Docker, from DOCKER_HOST): there is no such socket\n"
	if r.code != 0 || !strings.Contains(r.err, "crishim: warning: version: missing or not whole: "+list) || strings.Contains(r.err, `\x0a`) {
		t.Errorf("got %+v", r)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if page := unpacked(t, archive)["index.html"]; !strings.Contains(page, strings.TrimSpace(list)) || !strings.Contains(page, "td.prose{white-space:pre-line;") {
		t.Errorf("the page: %s", page)
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

// TestWhoWithoutARuntime: that nothing listens, and that forwarded ports are not known, are two failures on two lines.
func TestWhoWithoutARuntime(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t, vars: map[string]string{}}
	r := c.run("who", ":1")
	lines := strings.Split(r.err, "\n")
	if r.code != 1 || lines[0] != "crishim: :1: nothing listens on port 1" || !strings.HasPrefix(lines[1], "crishim: :1: the forwarded ports of pods are unknown: ") {
		t.Errorf("got %+v", r)
	}
}
