package verbs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
)

// TestRunPodGoesWithItsContainer: rm -f of its only container removes the sandbox that run created.
func TestRunPodGoesWithItsContainer(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	if got := c.run("run", "-d", "--name", "web", "busybox:1"); got.code != 0 {
		t.Fatalf("run: %+v", got)
	}
	if got := c.run("describe", "web"); !strings.Contains(got.out, "Made by:       crishim run\n") {
		t.Errorf("describe: %+v", got)
	}
	c.stub.AddContainer(c.stub.AddPod("default", "other"), "other")
	for _, name := range []string{"web", "other"} {
		if got := c.run("rm", "-f", name); got.code != 0 {
			t.Errorf("rm -f: %+v", got)
		}
	}
	if pods, containers := c.stub.Left(); pods != 1 || containers != 0 {
		t.Errorf("%d pods and %d containers are left, and one pod is another tool's", pods, containers)
	}
}

// TestNameOfSeveralPods: run does not add one, delete refuses to guess, and logs of run go with the pod.
func TestNameOfSeveralPods(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	run := []string{"run", "-d", "--name", "dup", "busybox:1"}
	if got := c.run(run...); got.code != 0 {
		t.Fatalf("run: %+v", got)
	}
	c.run(run...).want(t, 1, "", "crishim: there is a pod \"default/dup\" already\nhint: `crishim rmp -f default/dup` removes it\n")
	other := c.stub.AddPod("default", "dup")
	if got := c.run("delete", "dup"); got.code != 1 || !strings.Contains(got.err, "\"dup\" is ambiguous: 2 pods match\nhint: give one of these UIDs: ") {
		t.Errorf("delete: %+v", got)
	}
	if pods, _ := c.stub.Left(); pods != 2 {
		t.Errorf("%d pods are left", pods)
	}
	if got := c.run("rmp", "-f", other); got.code != 0 {
		t.Errorf("rmp: %+v", got)
	}
	logs := func() []string {
		found, err := filepath.Glob(filepath.Join(cli.OwnLogs, "default_dup_*"))
		if err != nil {
			t.Error(err)
		}
		return found
	}
	if os.Geteuid() == 0 && len(logs()) != 1 {
		t.Errorf("run has the logs %v", logs())
	}
	if got := c.run("delete", "dup"); got.code != 0 || len(logs()) != 0 {
		t.Errorf("delete: %+v, logs %v", got, logs())
	}
	c.run(run...)
	if got := c.run("rm", "-f", "dup"); got.code != 0 || len(logs()) != 0 {
		t.Errorf("rm -f: %+v, logs %v", got, logs())
	}
}

// TestRunpTwice says how to remove the pod that is there, and leaves its logs.
func TestRunpTwice(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	file := c.file("pod.json", `{"metadata": {"name": "twice", "namespace": "default", "uid": "u-twice"}}`)
	if got := c.run("runp", file); got.code != 0 {
		t.Fatalf("runp: %+v", got)
	}
	if got := c.run("runp", file); got.code != 1 || !strings.HasSuffix(got.err, "\nhint: `crishim rmp -f default/twice` removes the pod that is there\n") {
		t.Errorf("again: %+v", got)
	}
	if os.Geteuid() == 0 && !cli.IsDir(filepath.Join(cli.OwnLogs, "default_twice_u-twice")) {
		t.Error("the logs of the pod are gone")
	}
}

// TestDescribeShowsLimits of a pod whose manifest is not known.
func TestDescribeShowsLimits(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	if got := c.run("run", "-d", "--name", "small", "-m", "32Mi", "--cpus", "0.5", "--label", "k=v", "busybox:1"); got.code != 0 {
		t.Fatalf("run: %+v", got)
	}
	if got := c.run("describe", "small"); !strings.Contains(got.out, "Limits:      cpu=500m, memory=32Mi\n") || !strings.Contains(got.out, "Labels:        k=v\n") {
		t.Errorf("got %+v", got)
	}
}

// TestImagesOfARepository leaves out other names of an image, as docker does; documents have the whole message.
func TestImagesOfARepository(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stub.AddImage("example.com/app:1", "example.com/copy:1")
	if got := c.run("images", "example.com/app"); got.code != 0 || strings.Contains(got.out, "copy") || !strings.Contains(got.out, "example.com/app") {
		t.Errorf("got %+v", got)
	}
	if got := c.run("images", "-o", "json", "example.com/app"); got.code != 0 || !strings.Contains(got.out, "copy") {
		t.Errorf("got %+v", got)
	}
}

// TestHintsAtTheRightVerb: start of an ended container, -n with a number, and a file of the kernel.
func TestHintsAtTheRightVerb(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stub.Exit(c.stub.AddContainer(c.stub.AddPod("default", "web"), "web"), 0)
	c.stub.AddContainer(c.stub.AddPod("default", "up"), "up")
	for line, want := range map[string]string{
		"start web":                                "hint: it has ended, and CRI starts a container once; `crishim restart web` runs it again\n",
		"cp up:/proc/version .":                    "crishim: /proc/version is the kernel's: its files have no size, and cannot be copied\nhint: `crishim exec up cat /proc/version` prints one\n",
		"cp up:/proc .":                            "crishim: /proc is the kernel's: its files have no size, and cannot be copied\n",
		"port-forward up 18080:80:90":              `crishim: invalid port "18080:80:90": must be [ADDRESS:]LOCAL:REMOTE, and 18080 is no address`,
		"sync " + filepath.Join(t.TempDir(), "no"): "crishim: there is no directory ",
	} {
		if got := c.run(strings.Fields(line)...); got.code == 0 || !strings.Contains(got.err, want) || strings.HasPrefix(line, "sync") && got.code != 2 {
			t.Errorf("%s: %+v", line, got)
		}
	}
	c.terminal = true
	for _, verb := range []string{"ps", "pods"} {
		if got := c.run(verb, "-n", "5"); got.code != 0 || !strings.Contains(got.err, "hint: -n is the namespace, and there is no 5; `--last 5` is the number, and so is -n with --compat=crictl\n") {
			t.Errorf("%s: %+v", verb, got)
		}
		if got := c.run(verb, "-n", "none"); got.code != 0 || strings.Contains(got.err, "--last") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
}

// TestRunOutOfMemory: run says that a container was killed for memory.
func TestRunOutOfMemory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // run makes no log then, and attaches: the container would have to run
	}
	c := podTest(t)
	var once sync.Once
	c.stub.Before("ContainerStatus", func(context.Context) {
		for _, call := range c.stub.Calls() {
			if r, ok := call.Request.(*runtimeapi.StartContainerRequest); ok {
				once.Do(func() {
					c.stub.Log(r.GetContainerId(), "stdout", "out")
					c.stub.ExitFor(r.GetContainerId(), 137, "OOMKilled")
				})
			}
		}
	})
	if got := c.run("run", "--rm", "--name", "big", "busybox:1"); got.code != 137 || got.out != "out\n" || got.err != "crishim: warning: the container ran out of memory and was killed\n" {
		t.Errorf("got %+v", got)
	}
}

// TestSyncOnceOfAWrongManifest has the status of wrong input, as apply.
func TestSyncOnceOfAWrongManifest(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	directory := filepath.Dir(c.file("wrong.yaml", "kind: Pod\n"))
	if got := c.run("sync", "--once", "--wait", directory); got.code != 2 || !strings.Contains(got.err, "wrong.yaml") {
		t.Errorf("got %+v", got)
	}
}

// TestPortForwardRefusesUDP: only TCP can be forwarded.
func TestPortForwardRefusesUDP(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stdin = applyPod1[:len(applyPod1)-3] + `, ports: [{name: dns, containerPort: 53, protocol: UDP}]}]` + "\n"
	if got := c.run("apply", "-f", "-"); got.code != 0 {
		t.Fatalf("apply: %+v", got)
	}
	for port, want := range map[string]string{"53/udp": "port 53 is for UDP: only TCP", ":53": "port 53 of pod default/web is for UDP: only TCP", "5353:dns": "port 53 of pod default/web is for UDP"} {
		if got := c.run("port-forward", "web", port); got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", port, got)
		}
	}
}

// TestDeleteMany: --selector and --all are for the pods of apply, and --all wants a yes.
func TestDeleteMany(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stub.AddPod("default", "foreign")
	for i, label := range []string{"a", "a", "b", "b"} {
		c.stdin = strings.Replace(applyPod1, "{name: web}", fmt.Sprintf("{name: web%d, labels: {app: %s}}", i, label), 1)
		if got := c.run("apply", "-f", "-"); got.code != 0 {
			t.Fatalf("apply: %+v", got)
		}
	}
	c.stdin = ""
	c.stub.AddPod("default", "web0") // another tool's
	for _, s := range []struct {
		args, answer, err string
		code, left        int
	}{
		{"-l app=a web2", "", "not several of them", 2, 6},
		{"-l app=none", "", "no pods to delete", 0, 6},
		{"-l app=a", "", "", 0, 4},
		{"--all", "", "there is no terminal to ask on\nhint: `--yes`", 1, 4},
		{"--all", "\n", "Delete default/web2, default/web3 with their volumes and logs? [y/N] crishim: nothing is deleted\n", 1, 4},
		{"--all", "n\n", "[y/N] crishim: nothing is deleted\n", 1, 4},
		{"--all", "y\n", "[y/N] ", 0, 2},
		{"--all --yes", "", "no pods to delete", 0, 2},
	} {
		c.answer = s.answer
		got := c.run(append([]string{"delete"}, strings.Fields(s.args)...)...)
		if pods, _ := c.stub.Left(); got.code != s.code || pods != s.left || !strings.Contains(got.err, s.err) {
			t.Errorf("%s: %+v, %d pods are left", s.args, got, pods)
		}
	}
}

// TestDeleteWorkloads deletes workloads by kubectl's words for them, with all of their pods.
func TestDeleteWorkloads(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	for _, name := range []string{"default/web", "team/api", "a/two", "b/two", "c/two", "default/last", "default/more"} {
		namespace, name, _ := strings.Cut(name, "/")
		c.stdin = fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: %s}, spec: {selector: {matchLabels: {app: x}},
  template: {metadata: {labels: {app: x}}, spec: {containers: [{name: main, image: "busybox:1"}]}}}}`, name, namespace)
		if got := c.run("apply", "--replicas", "2", "-f", "-"); got.code != 0 {
			t.Fatalf("apply: %+v", got)
		}
	}
	c.stub.AddPod("default", "web-5") // another tool's
	for _, s := range []struct {
		args, out, err string
		code, left     int
	}{
		{"deployment/nosuch web-0", "", `there is no pod of a Deployment "nosuch"`, 1, 15},
		{"statefulset/web", "", `there is no pod of a StatefulSet "web"`, 1, 15},
		{"deploy two", "", "crishim: \"two\" is ambiguous: several namespaces have one\nhint: name its namespace with --namespace\n", 1, 15},
		{"--ignore-not-found sts/web", "", "", 0, 15},
		{"deployment/web", "pod default/web-0: deleted\npod default/web-1: deleted\n", "", 0, 13},
		{"--namespace a deployments.apps/two", "", "there is no pod", 1, 13},
		{"--namespace a Deployments/two", "pod a/two-0: deleted\npod a/two-1: deleted\n", "", 0, 11},
		{"deployment api last", "pod team/api-0: deleted\npod team/api-1: deleted\npod default/last-0: deleted\npod default/last-1: deleted\n", "", 0, 7},
		{"deploy/more more-1 web-5", "pod default/more-0: deleted\npod default/more-1: deleted\npod default/web-5: deleted\n", "", 0, 4},
	} {
		got := c.run(append([]string{"delete", "-q"}, strings.Fields(s.args)...)...)
		if pods, _ := c.stub.Left(); got.code != s.code || got.out != s.out || pods != s.left || !strings.Contains(got.err, s.err) || strings.Count(got.err, "crishim: ") > 1 {
			t.Errorf("%s: %+v, %d pods are left", s.args, got, pods)
		}
	}
}

// TestDeleteFilesNamesPodsOnly: a Pod of a file in a namespace with the name of a kind is no workload of another namespace.
func TestDeleteFilesNamesPodsOnly(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stdin = `{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: "busybox:1"}]}}}}`
	if got := c.run("apply", "-f", "-"); got.code != 0 {
		t.Fatalf("apply: %+v", got)
	}
	c.stdin = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: job}, spec: {containers: [{name: main, image: "busybox:1"}]}}`
	got := c.run("delete", "-q", "-f", "-")
	if pods, _ := c.stub.Left(); pods != 1 || strings.Contains(got.out, "deleted") {
		t.Errorf("%+v, %d pods are left", got, pods)
	}
	c.stub.AddPod("job", "other")
	if got := c.run("delete", "-q", "job/web"); got.code != 1 {
		t.Errorf("a name in the namespace job: %+v", got)
	}
}

// TestWhyOfManyPods: what pods have in common is said once, and --exit-code makes a status of it.
func TestWhyOfManyPods(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	if got := c.run("why", "--exit-code"); got.code != 0 {
		t.Errorf("all is well: %+v", got)
	}
	for i := range 3 {
		c.stub.Exit(c.stub.AddContainer(c.stub.AddPod("default", fmt.Sprint("web", i)), "main"), 3)
	}
	got := c.run("why", "--exit-code")
	if got.code != 1 || !strings.Contains(got.out, " and 2 more: main exited with status 3") || strings.Count(got.out, "exited with") != 1 {
		t.Errorf("got %+v", got)
	}
	if got := c.run("why"); got.code != 0 {
		t.Errorf("without the flag: %+v", got)
	}
}

// TestWhyOfAStop: what a user has ended is no crash, whichever signal it took and whoever made the pod. A container that
// had ended before has crashed.
func TestWhyOfAStop(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.now = time.Now // the clock of the containers
	stopped := c.stub.AddContainer(c.stub.AddPod("default", "stopped"), "main")
	crashed := c.stub.AddContainer(c.stub.AddPod("default", "crashed"), "main")
	c.stub.Exit(crashed, 137)
	if got := c.run("stop", stopped, crashed); got.code != 0 {
		t.Fatalf("stop: %+v", got)
	}
	if got := c.run("why", "-o", "json", "stopped"); !strings.Contains(got.out, `"code": "stopped"`) || !strings.Contains(got.out, "crishim stop") {
		t.Errorf("why: %+v", got)
	}
	if got := c.run("why", "-o", "json", "crashed"); !strings.Contains(got.out, `"code": "ended-by-signal"`) || strings.Contains(got.out, "crishim stop") {
		t.Errorf("why of a container that had ended before the stop: %+v", got)
	}
	c.stdin = applyPod1
	for _, line := range []string{"apply -f -", "stop web"} {
		if got := c.run(strings.Fields(line)...); got.code != 0 {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	if got := c.run("why", "-o", "json", "web"); !strings.Contains(got.out, `"code": "stopped"`) || !strings.Contains(got.out, "crishim stop") {
		t.Errorf("why: %+v", got)
	}
	if got := c.run("restart", "web"); strings.Contains(got.err, "keeps") { // no sync manages it
		t.Errorf("restart: %+v", got)
	}
}
