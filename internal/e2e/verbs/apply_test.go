package verbs

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

const applyPod1 = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "busybox:1"}]
`

// podTest is a command test with the real clock.
func podTest(t *testing.T) *commandTest {
	t.Helper()
	c := withStub(t, stubcri.Options{Now: time.Now})
	c.stub.AddImage("busybox:1")
	c.stub.AddImage("busybox:2")
	return c
}

func TestApplyAndDelete(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	apply := func(manifest string, args ...string) result {
		c.stdin = manifest
		return c.run(append([]string{"apply", "-f", "-"}, args...)...)
	}
	steps := []struct {
		name string
		got  func() result
		code int
		out  string
		err  string
	}{
		{"created", func() result { return apply(applyPod1, "--wait") }, 0, "pod default/web: created, ready", "started container"},
		{"again", func() result { return apply(applyPod1) }, 0, "pod default/web: up to date, ready", ""},
		{"new image", func() result { return apply(strings.Replace(applyPod1, "busybox:1", "busybox:2", 1)) }, 0, "up to date", "has a new definition"},
		{"other change", func() result {
			return apply(strings.Replace(applyPod1, "PeriodSeconds: 1", "PeriodSeconds: 2", 1), "--wait")
		}, 0, "replaced, ready", "the pod is replaced"},
		{"as JSON", func() result {
			return apply(strings.Replace(applyPod1, "PeriodSeconds: 1", "PeriodSeconds: 2", 1), "-o", "json", "-q")
		}, 0, `"phase": "Running"`, ""},
		{"as a name", func() result {
			return apply(strings.Replace(applyPod1, "PeriodSeconds: 1", "PeriodSeconds: 2", 1), "-o", "name", "-q")
		}, 0, "default/web\n", ""},
		{"described as a name", func() result { return c.run("describe", "-o", "name", "web") }, 0, "default/web\n", ""},
		{"described", func() result { return c.run("describe", "web") }, 0, "Container main:\n  Image:", ""},
		{"deleted", func() result { return c.run("delete", "web") }, 0, "pod default/web: deleted", "stopping container main"},
		{"not there", func() result { return c.run("delete", "web") }, 1, "", `there is no pod "web"`},
		{"not there and fine", func() result { return c.run("delete", "--ignore-not-found", "web") }, 0, "", ""},
	}
	for _, s := range steps {
		got := s.got()
		if got.code != s.code || !strings.Contains(got.out, s.out) || !strings.Contains(got.err, s.err) {
			t.Errorf("%s: got %d\n%s%s, want %d, %q and %q", s.name, got.code, got.out, got.err, s.code, s.out, s.err)
		}
	}
	if pods, containers := c.stub.Left(); pods+containers != 0 {
		t.Errorf("%d pods and %d containers are left", pods, containers)
	}
}

// TestApplyMakesFewCalls lists the calls of apply for a pod whose image is present.
func TestApplyMakesFewCalls(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stdin = applyPod1
	if got := c.run("apply", "-f", "-"); got.code != 0 {
		t.Fatal(got)
	}
	want := []string{
		"Version", "Status", // the runtime, and which of this host's it is
		"ListPodSandbox", "ListContainers", // pods of the same name
		"RunPodSandbox", "PodSandboxStatus", "ImageStatus", "CreateContainer", "StartContainer",
		"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", // what became of it
	}
	if diff := cmp.Diff(want, c.stub.Methods()); diff != "" {
		t.Errorf("%d calls: %s", len(c.stub.Methods()), diff)
	}
}

// TestApplyRefusesBeforeDialling has inputs that must not cost a connection.
func TestApplyRefusesBeforeDialling(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, stdin string
		args        []string
		code        int
		want        string
	}{
		{"no input", "", nil, 2, "no manifest: give files"},
		{"unknown field", strings.Replace(applyPod1, "image:", "imag:", 1), []string{"-f", "-"}, 2, "standard input: document 1: spec.containers[0].imag: unknown field"},
		{"other kind", "apiVersion: v1\nkind: Node", []string{"-f", "-"}, 2, "Node is not supported"},
		{"volume plugin", applyPod1 + "  volumes: [{name: v, nfs: {server: s, path: /}}]", []string{"-f", "-"}, 2, "spec.volumes[0].nfs: Forbidden: needs a volume plugin"},
		{"two problems", strings.NewReplacer("image:", "imag:", "kind:", "kinds:").Replace(applyPod1 + "---" + applyPod1), []string{"-f", "-"}, 2, "crishim: standard input: document 2: kind: required"},
		{"a pod of the CRI", "metadata: {name: web}\nlinux: {}", []string{"-"}, 2, "hint: this is a pod's configuration of the CRI: `crishim runp -`"},
		{"a container of the CRI", "metadata: {name: web}\nimage: {image: x}", []string{"-"}, 2, "hint: this is a container's configuration of the CRI: `crishim create POD -`"},
		{"neither", "spec: {}", []string{"-"}, 2, "kind: required\n"},
		{"missing file", "", []string{"-f", "/nowhere/web.yaml"}, 2, "/nowhere/web.yaml"},
		{"no pod", "", []string{"-f", "-"}, 2, "there is no Pod in the input"},
		{"timeout without wait", applyPod1, []string{"-f", "-", "--wait-timeout", "1s"}, 2, "--wait-timeout needs --wait"},
		{"timeout with a wait that is off", applyPod1, []string{"-f", "-", "--wait=false", "--wait-timeout", "1s"}, 2, "--wait-timeout needs --wait"},
		{"negative timeout", applyPod1, []string{"-f", "-", "--wait", "--wait-timeout", "-1s"}, 2, `invalid --wait-timeout "-1s": must not be negative`},
		{"another wait", applyPod1, []string{"-f", "-", "--wait=soon"}, 2, "invalid --wait=soon: must be --wait or --wait=ready"},
		{"no replicas", applyPod1, []string{"-f", "-", "--replicas", "0"}, 2, "invalid --replicas 0: must be between 1 and 1000"},
		{"wrong label", applyPod1, []string{"-f", "-", "--node-labels", "disk=a b"}, 2, "invalid --node-labels disk=a b: a valid label must be an empty string"},
		{"no directory", applyPod1, []string{"-f", "-", "--volume-dir="}, 2, "invalid --volume-dir: must not be empty"},
		{"a name to make", strings.Replace(applyPod1, "name:", "generateName:", 1), []string{"-f", "-"}, 2, "hint: give it a metadata.name, by which the next apply and delete find it"},
		{"no wait", applyPod1, []string{"-f", "-", "--wait="}, 2, "invalid --wait=: must be --wait or --wait=ready"},
		{"wait with a space", applyPod1, []string{"-f", "-", "--wait", "ready"}, 2, "hint: did you mean --wait=ready?"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := podTest(t)
			c.stdin = tc.stdin
			got := c.run(append([]string{"apply"}, tc.args...)...)
			if got.code != tc.code || !strings.Contains(got.err, tc.want) {
				t.Errorf("got %d, %q, want %d, %q", got.code, got.err, tc.code, tc.want)
			}
			if calls := c.stub.Methods(); len(calls) > 0 {
				t.Errorf("called %v", calls)
			}
		})
	}
}

// TestApplyTwiceAtOnce: the second waits for the first and finds all done.
func TestApplyTwiceAtOnce(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	manifest := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(manifest, []byte(applyPod1), 0o600); err != nil {
		t.Fatal(err)
	}
	second := make(chan result, 1)
	var once sync.Once
	c.stub.Before("RunPodSandbox", func(context.Context) {
		once.Do(func() { go func() { second <- c.run("apply", "--wait", "-f", manifest) }() })
	})
	first := c.run("apply", "--wait", "-f", manifest)
	if got := <-second; first.code != 0 || got.code != 0 || !strings.Contains(got.out, "up to date, ready") {
		t.Errorf("got %+v and %+v", first, got)
	}
	if pods, containers := c.stub.Left(); pods != 1 || containers != 1 {
		t.Errorf("got %d pods and %d containers", pods, containers)
	}
	if locks, err := os.ReadDir(filepath.Join(c.vars["CRISHIM_ROOT"], "locks")); err != nil || len(locks) > 0 {
		t.Errorf("locks are left: %v, %v", locks, err)
	}
}

// TestApplySlowPull: a pull that takes long holds up no other pod.
func TestApplySlowPull(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	started := make(chan struct{})
	var once sync.Once
	c.stub.Before("StartContainer", func(context.Context) { once.Do(func() { close(started) }) })
	c.stdin = strings.Replace(applyPod1, "busybox:1", "slow:1", 1) + "---" + strings.Replace(applyPod1, "name: web", "name: other", 1)
	c.stub.Before("PullImage", func(ctx context.Context) {
		select {
		case <-started:
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Error("the other pod waits")
		}
	})
	got := c.run("apply", "-f", "-")
	if got.code != 0 || !strings.HasPrefix(got.out, "pod default/web: created") || !strings.Contains(got.out, "\npod default/other: created") {
		t.Errorf("got %+v", got)
	}
}

func TestApplyDryRun(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stdin = applyPod1
	got := c.run("apply", "--dry-run", "-f", "-")
	for _, want := range []string{`"io.kubernetes.pod.name": "web"`, `"image": "busybox:1"`, `"containerPath": "/etc/hosts"`} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("got %d, %s%s, want %s", got.code, got.out, got.err, want)
		}
	}
	if _, err := os.Stat(c.vars["CRISHIM_ROOT"]); err == nil || len(c.stub.Methods()) > 0 {
		t.Errorf("something was done: %v", c.stub.Methods())
	}
}

func TestApplyLeavesForeignPods(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stub.AddPod("default", "web")
	c.stdin = applyPod1
	if got := c.run("apply", "-f", "-"); got.code != 1 || !strings.Contains(got.err, "a pod default/web that another tool made is there already") {
		t.Errorf("got %d, %s", got.code, got.err)
	}
	if pods, _ := c.stub.Left(); pods != 1 {
		t.Errorf("%d pods are left", pods)
	}
}

// TestDryRunMasksSecrets: no form in which a value from a Secret can get into a request shows it.
func TestDryRunMasksSecrets(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stdin = `
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {TOKEN: not-to-be-seen}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {PLAIN: to-be-seen}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: "busybox:1"
    envFrom: [{secretRef: {name: s}}, {secretRef: {name: s}, prefix: P_}, {configMapRef: {name: c}}]
    env: [{name: K, valueFrom: {secretKeyRef: {name: s, key: TOKEN}}}, {name: L, value: "x $(K)"}]
    command: [serve, "--token=$(K)"]
    args: ["$(TOKEN)", "$(P_TOKEN)"]
    volumeMounts: [{name: v, mountPath: /v, subPathExpr: "a/$(TOKEN)"}]
  volumes: [{name: v, emptyDir: {}}]
`
	for _, format := range []string{"json", "yaml"} {
		r := c.run("apply", "--dry-run", "-o", format, "-f", "-")
		text := r.out + r.err
		if r.code != 0 || strings.Contains(text, "not-to-be-seen") || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("not-to-be-seen"))) {
			t.Errorf("%s: status %d: %s", format, r.code, text)
		}
		if !strings.Contains(r.out, "--token=********") {
			t.Errorf("%s: no mask in %s", format, r.out)
		}
	}
}

const applyJob = `
apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  initContainers: [{name: side, image: "busybox:1", restartPolicy: Always}]
  containers: [{name: main, image: "busybox:1"}]
`

// TestApplyWaitsForJobs: apply --wait fails if the job fails, and lists the containers that a failed job leaves.
func TestApplyWaitsForJobs(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		args []string
		end  int32 // of the main container; -1: it runs on
		code int
		out  string
		err  string
	}{
		{"succeeds", []string{"--wait", "-f", "-"}, 0, 0, "pod default/job: created, succeeded", ""},
		{"succeeds, the flag behind", []string{"-f", "-", "--wait"}, 0, 0, "pod default/job: created, succeeded", ""},
		{"fails", []string{"--wait", "-f", "-"}, 4, 1, "", "crishim: default/job: the pod has failed: container main ended with status 4"},
		{"fails and is left", []string{"--wait=true", "-f", "-"}, 4, 1, "",
			"pod default/job is left with 1 sandbox, container main exited, container side exited\ncrishim: default/job: the pod has failed: container main ended with status 4\nhint: `crishim describe job` shows more, `crishim delete job` removes what is left\n"},
		{"ready", []string{"-f", "-", "--wait=ready"}, -1, 0, "pod default/job: created, ready", ""},
		{"no wait", []string{"-f", "-"}, -1, 0, "pod default/job: created, r", ""}, // running, or ready after a moment,
		{"too slow", []string{"-f", "-", "--wait", "--wait-timeout", "2s"}, -1, 1, "", "default/job: --wait-timeout of 2s is over: container main is not at its end"},
		{"too slow and is left", []string{"-f", "-", "--wait", "--wait-timeout=6s"}, -1, 1, "", "container main running, container side running\n"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := podTest(t)
			c.stdin = applyJob
			ends := make(chan struct{})
			if tc.end >= 0 {
				c.stub.AfterStart("main", func(id string) { defer close(ends); c.stub.Exit(id, tc.end) })
			} else {
				close(ends)
			}
			got := c.run(append([]string{"apply"}, tc.args...)...)
			<-ends
			if got.code != tc.code || !strings.Contains(got.out, tc.out) || !strings.Contains(got.err, tc.err) {
				t.Errorf("got %d\n%s%s, want %d, %q and %q", got.code, got.out, got.err, tc.code, tc.out, tc.err)
			}
		})
	}
}

// TestApplyNamesWhatEndsAtOnce has a container that has ended when apply returns, and says what shows why.
func TestApplyNamesWhatEndsAtOnce(t *testing.T) {
	t.Parallel()
	two := strings.Replace(applyPod1, `}]`, `}, {name: side, image: "busybox:1"}]`, 1)
	for _, tc := range []struct {
		name, manifest string
		end            int32
		out, hint      string
	}{
		{"fails", two, 3, "pod default/web: created, container main has exited with status 3, address ", "hint: `crishim describe web` shows more\n"},
		{"ends", two, 0, "pod default/web: created, container main has exited with status 0, address ", "hint: `crishim describe web` shows more\n"},
		{"fails for good", strings.Replace(two, "spec:", "spec:\n  restartPolicy: Never", 1), 3, "pod default/web: created, container main has exited with status 3, address ", "hint: `crishim describe web` shows more\n"},
		{"ends for good", strings.Replace(two, "spec:", "spec:\n  restartPolicy: Never", 1), 0, "pod default/web: created, running, address ", ""},
	} {
		c := podTest(t)
		c.stdin = tc.manifest
		ended := make(chan struct{})
		c.stub.AfterStart("main", func(id string) { defer close(ended); c.stub.Exit(id, tc.end) })
		var creates atomic.Int32
		c.stub.Before("CreateContainer", func(context.Context) {
			if creates.Add(1) == 2 {
				<-ended
			}
		})
		got := c.run("apply", "-q", "-f", "-")
		if got.code != 0 || !strings.HasPrefix(got.out, tc.out) || got.err != tc.hint {
			t.Errorf("%s: got %d\n%s%s, want %q and %q", tc.name, got.code, got.out, got.err, tc.out, tc.hint)
		}
	}
}

// TestPodsThatNobodyProbes: whether a pod is ready is not known once its keeper has gone.
func TestPodsThatNobodyProbes(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stdin = strings.Replace(applyPod1, `}]`, `, readinessProbe: {exec: {command: ["true"]}}}]`, 1) + "---" + strings.Replace(applyPod1, "web", "plain", 1)
	if got := c.run("apply", "-q", "-f", "-"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	c.vars["NO_COLOR"] = "1"
	var out test.Buffer
	c.onTerminal(t.Context(), 80, &out, "pods", "--columns", "name,ready,state", "--sort", "name").want(t, 0, ""+
		"NAME    READY   STATE\nplain   1/1     Running\nweb     ?/1     Running\n",
		"hint: pod web is not probed any more; `crishim describe web` probes it once\n")
}

// TestApplyLeavesNothingUnsaid has a pod that gets no sandbox.
func TestApplyLeavesNothingUnsaid(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stdin = applyPod1
	c.stub.Fail("RunPodSandbox", errors.New("no network"))
	if got := c.run("apply", "-f", "-"); got.code != 1 || !strings.Contains(got.err, "no network") {
		t.Errorf("got %+v", got)
	}
	if pods, err := os.ReadDir(filepath.Join(c.vars["CRISHIM_ROOT"], "pods")); err != nil || len(pods) > 0 {
		t.Errorf("left: %v, %v", pods, err)
	}
	c.stub.Fail("RunPodSandbox", nil)
	c.stub.Fail("CreateContainer", errors.New("no space"))
	file := filepath.Join(t.TempDir(), "my pod.yaml")
	if err := os.WriteFile(file, []byte(applyPod1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.run("apply", "-f", file); got.code != 1 || !strings.Contains(got.err, "pod default/web is left with 1 sandbox\n") ||
		!strings.Contains(got.err, "\nhint: `crishim describe web` shows more, `crishim apply '"+file+"'` goes on from there, `crishim delete web` removes what is left\n") {
		t.Errorf("got %+v", got)
	}
	if got := c.run("delete", "default/web"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if pods, containers := c.stub.Left(); pods+containers != 0 {
		t.Errorf("%d pods and %d containers are left", pods, containers)
	}
}

// TestDeleteOfAPodWithoutSandboxes: a pod that another verb has removed is gone for describe and why; delete finds what is left of it,
// and its directory goes.
func TestDeleteOfAPodWithoutSandboxes(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"web", "-f -"} {
		c := podTest(t)
		c.stdin = applyPod1
		for _, line := range []string{"apply -f -", "rmp -f web", "why --exit-code"} {
			if got := c.run(strings.Fields(line)...); got.code != 0 {
				t.Fatalf("%s: got %+v", line, got)
			}
			c.stdin = applyPod1
		}
		for _, verb := range []string{"describe", "why"} {
			if got := c.run(verb, "web"); got.code != 1 || !strings.Contains(got.err, `"web"`) {
				t.Errorf("%s: got %+v", verb, got)
			}
		}
		if got := c.run(append([]string{"delete"}, strings.Fields(args)...)...); got.code != 0 || !strings.Contains(got.out, "pod default/web: deleted") {
			t.Errorf("%s: got %+v", args, got)
		}
		if left, err := os.ReadDir(filepath.Join(c.vars["CRISHIM_ROOT"], "pods")); err != nil || len(left) > 0 {
			t.Errorf("%s: left: %v, %v", args, left, err)
		}
	}
}

// TestDeleteTouchesNothingWhenItRefuses: what people type after kubectl is taken, and a mistake in one name deletes nothing.
func TestDeleteTouchesNothingWhenItRefuses(t *testing.T) {
	t.Parallel()
	steps := []struct {
		args string
		code int
		out  string
		err  string
		left int
	}{
		{"web wbe", 1, "", "there is no pod \"wbe\"\nhint: did you mean web?", 4},
		{"pod web nosuch", 1, "", `there is no pod "nosuch"`, 4},
		{"team/dbx", 1, "", "did you mean team/db?", 4},
		{"two", 1, "", `"two" is ambiguous: there is one in a and one in b`, 4},
		{"pod web", 0, "pod default/web: deleted\n", "", 3},
		{"pod/a/two pods/db", 0, "pod a/two: deleted\npod team/db: deleted\n", "", 1},
		{"po b/two b/two", 0, "pod b/two: deleted\n", "", 0},
		{"pod", 1, "", `there is no pod "pod"`, 0},
	}
	c := podTest(t)
	for _, name := range []string{"default/web", "team/db", "a/two", "b/two"} {
		namespace, name, _ := strings.Cut(name, "/")
		c.stub.AddPod(namespace, name)
	}
	for _, s := range steps {
		got := c.run(append([]string{"delete", "-q"}, strings.Fields(s.args)...)...)
		if got.code != s.code || got.out != s.out || !strings.Contains(got.err, s.err) {
			t.Errorf("%s: got %d\n%s%s, want %d, %q and %q", s.args, got.code, got.out, got.err, s.code, s.out, s.err)
		}
		if pods, _ := c.stub.Left(); pods != s.left {
			t.Errorf("%s: %d pods are left, want %d", s.args, pods, s.left)
		}
	}
	c.stub.AddPod("default", "web")
	c.stub.AddPod("default", "pod")
	got := c.run("delete", "pod", "web")
	if pods, _ := c.stub.Left(); got.code != 1 || pods != 2 || !strings.Contains(got.err, "name the pod default/pod, or leave the word out") {
		t.Errorf("got %d\n%s, and %d pods are left", got.code, got.err, pods)
	}
}

// TestApplyTakesFiles without -f, several, and deletes of a manifest what is there.
func TestApplyTakesFiles(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"a", "b", "c"} {
		files = append(files, filepath.Join(dir, name+".yaml"))
		if err := os.WriteFile(files[len(files)-1], []byte(strings.Replace(applyPod1, "web", name, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := c.run("apply", "-q", files[0], files[1], "-f", files[2])
	if got.code != 0 || strings.Count(got.out, ": created") != 3 {
		t.Errorf("got %d\n%s%s", got.code, got.out, got.err)
	}
	if got := c.run("delete", "-q", "b"); got.code != 0 {
		t.Errorf("got %d\n%s", got.code, got.err)
	}
	got = c.run("delete", "-q", "-f", dir)
	if got.code != 1 || strings.Count(got.out, ": deleted") != 2 || !strings.Contains(got.err, `there is no pod "default/b"`) {
		t.Errorf("got %d\n%s%s", got.code, got.out, got.err)
	}
	if got := c.run("runp", files[0]); got.code != 2 || !strings.Contains(got.err, "is a Kubernetes manifest, not a configuration of the CRI\nhint: `crishim apply "+files[0]) {
		t.Errorf("got %d\n%s", got.code, got.err)
	}
}
