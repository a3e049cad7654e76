package reliability

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsStaySecretOnEngine passes secrets to all verbs that accept them, with maximal verbosity. They must not
// occur in crishim's output, serve's log and dumps, or process arguments.
func TestSecretsStaySecretOnEngine(t *testing.T) {
	h := newHost(t)
	metrics := freeAddress(t)
	s := newServe(t, h.endpoint(), "--metrics-addr", metrics)
	s.args = append([]string{"-D"}, s.args...)
	s.start()
	p := h.pod(t)
	name := p.config.GetMetadata().GetName()
	p.label = "io.kubernetes.pod.name=" + name
	// Secrets in the user's own arguments are visible in the process list.
	typed, hidden := "typed"+rand.Text(), "hidden"+rand.Text()
	watcher := watchProcesses(t, hidden)

	const image = "127.0.0.1:1/none:1" // nothing listens there
	auths := p.file(t, "auth.json", fmt.Sprintf(`{"auths":{"127.0.0.1:1":{"auth":%q,"identitytoken":%q}}}`, encoded("u:"+hidden), hidden))
	podFile := p.json(t, p.config)
	config := func(text string) string { return p.file(t, "main.yaml", text) }
	good := fmt.Sprintf("metadata: {name: main}\nimage: {image: %q}\ncommand: [sleep, \"1000\"]\nenvs: [{key: A, value: %s}]\nlinux: {}\n", testImage, hidden)
	manifest := func(data string) string {
		return p.file(t, "pod.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: reliability}
spec:
  terminationGracePeriodSeconds: 1
  imagePullSecrets: [{name: pull}]
  volumes: [{name: v, secret: {secretName: s}}]
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, command: [sleep, "1000"], env: [{name: A, value: %s}, {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}], volumeMounts: [{name: v, mountPath: /v}]}
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: reliability}
%s
---
apiVersion: v1
kind: Secret
type: kubernetes.io/dockerconfigjson
metadata: {name: pull, namespace: reliability}
stringData: {.dockerconfigjson: '{"auths":{"127.0.0.1:1":{"auth":%q}}}'}
`, name, testImage, hidden, data, encoded("u:"+hidden)))
	}
	ref := "reliability/" + name
	lines := []struct {
		stdin string
		env   []string
		args  []string
	}{
		{args: []string{"pull", "--creds", "u:" + typed, image}},
		{args: []string{"pull", "--auth", encoded("u:" + typed), image}},
		{args: []string{"pull", "--auth", typed, image}},
		{args: []string{"pull", "--username", "u", "--password-stdin", image}, stdin: hidden + "\n"},
		{args: []string{"pull", "--creds", "u", "--password-stdin", image}, stdin: hidden + "\n"},
		{args: []string{"pull", image}, env: []string{"CRICTL_CREDS=u:" + hidden}},
		{args: []string{"pull", image}, env: []string{"CRICTL_AUTH=" + encoded("u:"+hidden)}},
		{args: []string{"pull", "--authfile", auths, image}},
		{args: []string{"pull", "--authfile", p.file(t, "bad.json", `{"auths":{"127.0.0.1:1":{"auth":"`+hidden+`"`), image}},
		{args: []string{"pull", "--authfile", p.file(t, "bad.json", `{"auths":{"127.0.0.1:1":{"auth":"`+hidden+`!"}}}`), image}},
		{args: []string{"run", "-d", "--name", name, "-e", "A=" + typed, "-e", "B", image}, env: []string{"B=" + hidden}},
		{args: []string{"apply", "-f", manifest("data: {k: " + hidden + "!}")}},
		{args: []string{"apply", "-f", manifest("stringData: [" + hidden + "]")}},
		{args: []string{"apply", "-f", manifest("stringData: {k: {" + hidden + ": x}}")}},
		{args: []string{"apply", "-f", manifest("stringData: {k: " + hidden + "}")}},
		{args: []string{"exec", "--env", "A=" + typed, ref + "/main", "true"}},
		{args: []string{"exec", "--sync", "--env", "A=" + typed, ref + "/main", "true"}},
		{args: []string{"describe", ref}},
		{args: []string{"create", ref, config(good), podFile}},
		{args: []string{"create", ref, config("envs: " + hidden), podFile}},
		{args: []string{"create", ref, config("envs: [" + hidden + "]"), podFile}},
		{args: []string{"create", ref, config("envs: [{key: A, value: {" + hidden + ": 1}}]"), podFile}},
		{args: []string{"create", ref, config("envs: [{key: A, value: " + hidden + "}\n- x"), podFile}},
		{args: []string{"create", ref, config(strings.ReplaceAll(good, testImage, "absent:1")), podFile}},
		{args: []string{"delete", ref}},
	}
	root := t.TempDir()
	for _, endpoint := range []string{s.endpoint(), embedded(h.endpoint())} {
		for _, line := range lines {
			crishim := h.crishim(t, endpoint)
			crishim.stdin = line.stdin
			crishim.env = append(crishim.env, "CRISHIM_ROOT="+root, "GRPC_GO_LOG_SEVERITY_LEVEL=info", "GRPC_GO_LOG_VERBOSITY_LEVEL=99")
			crishim.env = append(crishim.env, line.env...)
			r := crishim.run(t.Context(), append([]string{"-D"}, line.args...)...)
			for stream, text := range map[string]string{"stdout": r.out, "stderr": r.err} {
				if found := secretIn(text, typed, hidden); found != "" {
					t.Errorf("%v: on %s: %s", line.args, stream, found)
				}
			}
			if strings.Contains(r.err, "panic") {
				t.Errorf("%v: %s", line.args, r.err)
			}
			if line.args[0] == "apply" && strings.Contains(r.err, "unknown field") {
				t.Errorf("%v: %s", line.args, r.err)
			}
		}
	}
	for _, dump := range []string{"/metrics", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"} {
		r, err := http.Get("http://" + metrics + dump)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if found := secretIn(string(text), typed, hidden); err != nil || found != "" {
			t.Errorf("%s: %s, %v", dump, found, err)
		}
	}
	s.stop()
	log, err := os.ReadFile(s.log)
	if found := secretIn(string(log), typed, hidden); err != nil || found != "" || len(log) == 0 {
		t.Errorf("serve's log of %d bytes: %s, %v", len(log), found, err)
	}
	if seen := watcher(); len(seen) > 0 {
		t.Errorf("in the list of processes: %v", seen)
	}
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// secretIn returns the context of a secret in text, plain or in base64, or "".
func secretIn(text string, secrets ...string) string {
	for _, secret := range secrets {
		for _, form := range []string{secret, encoded(secret), encoded("u:" + secret)} {
			if at := strings.Index(text, form); at >= 0 {
				return fmt.Sprintf("%q", text[max(0, at-100):min(len(text), at+len(form)+20)])
			}
		}
	}
	return ""
}

// watchProcesses polls the arguments of all processes. The returned function stops the polling and returns the command
// lines that contain the secret.
func watchProcesses(t *testing.T, secret string) func() []string {
	t.Helper()
	stop, found := make(chan struct{}), make(chan []string)
	go func() {
		var seen []string
		for {
			select {
			case <-stop:
				found <- seen
				return
			default:
			}
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, line := range lines {
				if text, err := os.ReadFile(line); err == nil && strings.Contains(string(text), secret) {
					seen = append(seen, string(text))
				}
			}
		}
	}()
	return func() []string {
		close(stop)
		return <-found
	}
}
