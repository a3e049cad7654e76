package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plant fills every field of a message. Each text is a marker with the name of the field.
func plant(m protoreflect.Message, path string) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		at := path + "." + string(f.Name())
		value := func(at string, one func() protoreflect.Value) protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString("<" + at + ">")
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte("<" + at + ">"))
			case protoreflect.MessageKind:
				v := one()
				plant(v.Message(), at)
				return v
			}
			return f.Default()
		}
		switch {
		case f.IsMap():
			all := m.Mutable(f).Map()
			if f.MapValue().Kind() == protoreflect.StringKind {
				all.Set(protoreflect.ValueOfString("<"+at+".key>").MapKey(), protoreflect.ValueOfString("<"+at+".value>"))
			}
		case f.IsList():
			all := m.Mutable(f).List()
			if v := value(at, all.NewElement); v.IsValid() {
				all.Append(v)
			}
		default:
			if v := value(at, func() protoreflect.Value { return m.NewField(f) }); v.IsValid() {
				m.Set(f, v)
			}
		}
	}
}

func planted[M interface{ ProtoReflect() protoreflect.Message }](m M, path string) M {
	plant(m.ProtoReflect(), path)
	return m
}

var marker = regexp.MustCompile(`<[a-zA-Z0-9_.]+>`)

// TestOnlyTheListIsTold: every text in the runtime's messages and verbose status is a marker. The archive contains
// exactly the markers in the list.
func TestOnlyTheListIsTold(t *testing.T) {
	t.Parallel()
	const spec = `{"runtimeSpec":{"process":{"args":["<info.command>","<info.argument>"],"env":["<info.env.name>=<info.env.value>"],"cwd":"<info.cwd>"},"annotations":{"<info.key>":"<info.value>"}},"config":{"envs":[{"key":"A","value":"<info.config>"}]}}`
	build := func(keep Keep) string {
		pod, box := planted(&runtimeapi.PodSandbox{}, "pod"), planted(&runtimeapi.PodSandboxStatusResponse{}, "podstatus")
		container, status := planted(&runtimeapi.Container{}, "container"), planted(&runtimeapi.ContainerStatusResponse{}, "status")
		pod.Labels["io.kubernetes.pod.name"], container.Annotations["io.kubernetes.container.hash"] = "<own.label>", "<own.annotation>"
		container.Annotations["io.kubernetes.container.preStopHandler"] = "<own.handler>"
		status.Info = map[string]string{"info": spec, "other": "<info.other>"}
		box.Info = map[string]string{"info": `{"config":{"port_mappings":[{"host_port":80,"host_ip":"10.0.0.1"}],"hostname":"<info.hostname>"}}`}
		view, _ := newContainer(container, status, planted(&runtimeapi.PodSandboxMetadata{}, "meta"), planted(&runtimeapi.ContainerStats{}, "stats"), keep)
		image, runtime := message{}, message{}
		image.pick(planted(&runtimeapi.Image{}, "image"), imageFields)
		runtime.pick(planted(&runtimeapi.RuntimeStatus{}, "runtime"), conditionFields)
		r := &Report{Title: "t", Pods: []message{newPod(pod, box)}, Images: []message{image}, Status: runtime, Containers: []message{view}}
		all := ""
		for _, text := range unpack(t, r) {
			all += text
		}
		found := marker.FindAllString(strings.NewReplacer("&lt;", "<", "&gt;", ">", `\u003c`, "<", `\u003e`, ">").Replace(all), -1)
		found = slices.DeleteFunc(found, func(s string) bool { return !strings.Contains(s, ".") })
		slices.Sort(found)
		return strings.Join(slices.Compact(found), " ")
	}
	want := strings.Fields(`<container.annotations.key> <container.id> <container.image.image> <container.image_id> <container.image_ref> <container.labels.key>
		<container.metadata.name> <container.pod_sandbox_id> <image.id> <image.repo_digests> <image.repo_tags> <info.command> <info.env.name> <meta.name> <meta.namespace>
		<own.annotation> <own.label> <pod.annotations.key> <pod.id> <pod.labels.key> <pod.metadata.name> <pod.metadata.namespace> <pod.metadata.uid> <pod.runtime_handler>
		<podstatus.status.network.additional_ips.ip> <podstatus.status.network.ip> <runtime.conditions.message> <runtime.conditions.reason> <runtime.conditions.type>
		<status.status.log_path> <status.status.message> <status.status.mounts.container_path> <status.status.mounts.host_path> <status.status.reason>`)
	slices.Sort(want)
	if diff := cmp.Diff(want, strings.Fields(build(Keep{}))); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	want = append(want, "<info.argument>", "<info.env.value>")
	slices.Sort(want)
	if diff := cmp.Diff(want, strings.Fields(build(Keep{Args: true, Env: true}))); diff != "" {
		t.Errorf("with arguments and environment (-want +got):\n%s", diff)
	}
}

// unpack returns the files of the archive.
func unpack(t *testing.T, r *Report) map[string]string {
	t.Helper()
	var archive bytes.Buffer
	if err := r.Write(&archive); err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for a := tar.NewReader(zipped); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		text, failed := io.ReadAll(a)
		if err != nil || failed != nil || h.Mode&0o077 != 0 {
			t.Fatal(err, failed, h)
		}
		files[strings.TrimPrefix(h.Name, r.Title+"/")] = string(text)
	}
}

// TestPartsEachFail: the bundle lists a part that hangs, fails or panics with its error.
func TestPartsEachFail(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	defer close(never)
	r := &Report{}
	err := r.Collect(t.Context(), []Part{
		{Name: "well", Collect: func(context.Context) (func(*Report), error) {
			return func(r *Report) { r.Endpoint = "seen" }, nil
		}},
		{Name: "hangs", Limit: time.Millisecond, Collect: func(context.Context) (func(*Report), error) {
			<-never // ignores its context, like a system call
			return nil, nil
		}},
		{Name: "fails", Collect: func(context.Context) (func(*Report), error) { return nil, errors.New("refused") }},
		{Name: "panics", Collect: func(context.Context) (func(*Report), error) { panic("oh") }},
	}, func(Result) {})
	var got []string
	for _, p := range r.Parts {
		got = append(got, p.Part+": "+p.Error)
	}
	if text := strings.Join(got, "\n"); err != nil || r.Endpoint != "seen" || text != "well: \nhangs: not done within 1ms\nfails: refused\npanics: a fault of crishim: oh" {
		t.Errorf("%v, got\n%s", err, text)
	}
}

// TestConfig: parse returns the listed keys of files in each format, without credentials.
func TestConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"daemon.json": {
			`{"debug":true,"data-root":"/d","log-opts":{"splunk-token":"planted","max-size":"10m"},"registry-mirrors":["https://u:planted@mirror.example/planted?token=planted"],"hosts":["unix:///run/d.sock"]}`,
			`{"data-root":"/d","debug":"true","hosts":"unix:///run/d.sock","max-size":"10m","registry-mirrors":"https://mirror.example"}`,
		},
		"config.toml": {
			"version = 2\nroot = \"/var/lib/c\" \nimports = [\"/a\", \"/b\"]\n[plugins.\"planted\".registry.headers]\n  X-Meta = [\"planted\"]\n auth = \"planted\"\nscript = '''\nroot = \"planted\"\n'''\n[a]\n# plugin_dirs = [\n#   \"/c\",\n# ]\nplugin_dirs = [\n\t\"/opt/cni/bin/\", # the default\n\t'/b',\n]\nother = [\n  \"planted\",\n  \"root=planted\",\n]\nsandbox_image='r/pause:3'\n",
			`{"imports":"/a, /b","plugin_dirs":"/opt/cni/bin/, /b","root":"/var/lib/c","sandbox_image":"r/pause:3","version":"2"}`,
		},
		"config.yaml": {
			"runtime-endpoint: unix:///run/x\nbootstrap: planted\nkeys:\n  planted: |\n    planted\n  name: web\nlocation: user:planted@registry.example/x\n",
			`{"location":"registry.example","name":"web","runtime-endpoint":"unix:///run/x"}`,
		},
	} {
		settings, err := parse(name, []byte(c.text))
		got, failed := json.Marshal(settings)
		if err != nil || failed != nil || string(got) != c.want {
			t.Errorf("%s: %v, %v; got %s, want %s", name, err, failed, got, c.want)
		}
	}
	if settings, err := parse("x.conflist", []byte("{planted")); err == nil || len(settings) > 0 {
		t.Errorf("a broken file: %v, %v", settings, err)
	}
}

// TestBare: an @ may also be in a password, a path or a query.
func TestBare(t *testing.T) {
	t.Parallel()
	digest := "r.example:5000/pause:3@sha256:" + strings.Repeat("a", 64)
	for value, want := range map[string]string{
		"/run/x.sock":                      "/run/x.sock",
		"unix:///run/x.sock":               "unix:///run/x.sock",
		"ssh://me@h.example/run/x.sock":    "ssh://h.example",
		"https://u:p@h.example:5/x?t=p":    "https://h.example:5",
		"https://u:p@ss@h.example/x":       "https://h.example",
		"https://u:12/34@h.example":        "(omitted)",
		"https://h.example/p?mail=a@p&t=p": "(omitted)",
		"u:p@h.example:5/x":                "h.example:5",
		"u:p@ss@h.example/x":               "h.example",
		"u:p@sha256:ss@h.example?t=p":      "h.example",
		"u:p/p@h.example":                  "(omitted)",
		"h.example:5/x?mail=a@p":           "(omitted)",
		"me@h.example":                     "me@h.example",
		digest:                             digest,
	} {
		if got := Bare(value); got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}

// TestHost: the report has the facts of the host. It has complete configuration files only with KeepConfig.
func TestHost(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{"etc/docker/daemon.json": `{"bip":"10.0.0.1/24"}`, "etc/cni/net.d/10-x.conflist": "{planted", "proc/loadavg": "1 2 3\n", "etc/os-release": "PRETTY_NAME=\"Debian\"\n"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for keep, files := range map[bool]int{false: 0, true: 2} {
		r := &Report{}
		if err := r.Collect(t.Context(), Machine{Root: root, KeepConfig: keep}.Parts(), func(Result) {}); err != nil {
			t.Fatal(err)
		}
		if r.Host["/proc/loadavg"] != "1 2 3" || !strings.Contains(r.Host["/etc/os-release"], "Debian") || r.Host["df /"] == "" || len(r.Files) != files || len(r.Config) != 2 || r.Config["/etc/docker/daemon.json"]["bip"] == "" {
			t.Errorf("got %+v", r)
		}
		if r.Parts[1].Error != "/etc/cni/net.d/10-x.conflist is not read: it is not well-formed" {
			t.Errorf("got %+v", r.Parts)
		}
	}
}
