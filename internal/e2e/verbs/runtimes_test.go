package verbs

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// readingLines run every verb that reads, with its filters. Their output is
// the same on every runtime that has the call.
var readingLines = []string{
	"images", "images busybox", "images -q --digests", "images --filter dangling=false",
	"inspecti -o go-template={{.status.repoTags}} busybox", "imagefsinfo -o jsonpath={.status.imageFilesystems[0].usedBytes.value}",
	"pods", "pods --name web", "pods -q --label app=web", "pods --state notready", "pods --id POD",
	"inspectp -o go-template={{.status.network.ip}} web",
	"ps", "ps -a", "ps --name nginx", "ps -q --label app=web", "ps -a --state exited", "ps --pod web", "ps --image busybox", "ps -a --last 1",
	"inspect -o go-template={{.status.state}} default/web/nginx", "logs nginx", "logs --tail 1 db/migrate",
	"stats", "stats --pod web", "statsp", "metricdescs", "metricsp", "exec nginx echo hello", "exec --sync nginx echo hello",
}

// otherLines print what differs from runtime to runtime.
var otherLines = []string{
	"version", "version -o json", "info", "info -o json", "endpoints", "doctor", "doctor -o json", "runtime-config",
	"images -o json", "images -o wide", "inspecti busybox", "pods -o json", "pods -o wide", "inspectp web", "ps -a -o json", "ps -a -o wide", "inspect nginx",
	"stats -o json", "statsp -o json", "describe web", "describe prod/db", "metricsp -o json", "imagefsinfo",
}

// oddNode is a node whose lists are big, because of long annotations.
func oddNode(t *testing.T, o stubcri.Options) *commandTest {
	t.Helper()
	if o.MaxSend > 0 {
		o.MaxSend = 100 << 10
	}
	c := withStub(t, o)
	long := map[string]string{"note": strings.Repeat("x", 30<<10)}
	logs := t.TempDir()
	labels := func(pod, namespace string) map[string]string {
		return map[string]string{kube.LabelPodName: pod, kube.LabelPodNamespace: namespace, "app": pod}
	}
	pod := func(namespace, name string) string {
		return c.stub.AddPod(namespace, name, func(p *runtimeapi.PodSandboxConfig) {
			p.Labels, p.Annotations, p.LogDirectory = map[string]string{"app": name}, long, logs
		})
	}
	container := func(pod, name string, labels map[string]string) string {
		return c.stub.AddContainer(pod, name, func(o *runtimeapi.ContainerConfig) {
			o.Labels, o.Annotations, o.LogPath = labels, long, name+".log"
		})
	}
	web, db := pod("default", "web"), pod("prod", "db")
	c.stub.StopPod(pod("default", "old"))
	pod("default", "idle")
	c.stub.Log(container(web, "nginx", labels("web", "default")), "stdout", "hello")
	container(web, "sidecar", labels("web", "default"))
	migrate := container(db, "migrate", labels("db", "prod"))
	c.stub.Log(migrate, "stdout", "migrated")
	c.stub.Exit(migrate, 3)
	container(db, "postgres", labels("db", "prod"))
	for _, ref := range []string{"busybox", "registry.example.com/app:v1", "registry.k8s.io/pause:3.9", "other"} {
		c.stub.AddImage(ref)
		c.stub.Image(ref, func(i *runtimeapi.Image) { i.Spec = &runtimeapi.ImageSpec{Annotations: long} })
	}
	return c
}

// runLine runs a line with the id of a pod in it.
func (c *commandTest) runLine(line string) result {
	c.t.Helper()
	args := strings.Fields(line)
	if i := slices.Index(args, "POD"); i >= 0 {
		args[i] = strings.TrimSpace(c.run("pods", "-q", "--no-trunc", "--name", "web").out)
	}
	return c.run(args...)
}

// Lines that need what a runtime does not have, and how they say so.
var (
	noMetrics = map[string]string{"metricdescs": notImplemented, "metricsp": notImplemented}
	noCalls   = map[string]string{
		"metricdescs": notImplemented, "metricsp": notImplemented, "stats": notImplemented, "stats --pod web": notImplemented, "statsp": notImplemented,
		"imagefsinfo -o jsonpath={.status.imageFilesystems[0].usedBytes.value}": notImplemented,
	}
	noPodStats = map[string]string{"metricdescs": notImplemented, "metricsp": notImplemented, "statsp": notImplemented}
)

const notImplemented = "does not implement this call"

// TestRuntimes compares the output for existing runtimes with the output for a
// complete runtime.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	want := map[string]result{}
	plain := oddNode(t, stubcri.Options{})
	for _, line := range readingLines {
		want[line] = plain.runLine(line)
		if r := want[line]; r.code != 0 || r.err != "" || r.out == "" {
			t.Errorf("%s: got %+v", line, r)
		}
	}
	cases := map[string]struct {
		fails   map[string]string // line: what it says
		differs []string          // lines that go well and have less to tell
	}{
		"containerd 1.6": {fails: noMetrics},
		"containerd 1.7": {fails: noMetrics},
		"containerd 2":   {fails: noMetrics},
		"CRI-O":          {fails: noMetrics, differs: []string{"images -q --digests"}},
		"cri-dockerd":    {fails: noPodStats, differs: []string{"stats", "stats --pod web"}},
		"dockershim 1.23": {
			fails:   map[string]string{"metricdescs": notImplemented, "metricsp": notImplemented, "statsp": "not implemented"},
			differs: []string{"stats", "stats --pod web"},
		},
		"only lists":      {fails: noCalls},
		"ignores filters": {},
		"big lists":       {},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := oddNode(t, stubcri.Profiles()[name])
			for _, line := range readingLines {
				got, text := c.runLine(line), tt.fails[line]
				switch {
				case text != "":
					if got.code != 1 || got.out != "" || !strings.Contains(got.err, text) || strings.Contains(got.err, "rpc error") {
						t.Errorf("%s: got %+v, want it to say %q", line, got, text)
					}
				case slices.Contains(tt.differs, line):
					if got.code != 0 || got.err != "" || strings.Count(got.out, "\n") != strings.Count(want[line].out, "\n") {
						t.Errorf("%s: got %+v", line, got)
					}
				default:
					if diff := cmp.Diff(want[line], got, cmp.AllowUnexported(result{})); diff != "" {
						t.Errorf("%s (-want +got):\n%s", line, diff)
					}
				}
			}
			c.answersAll(t, otherLines)
		})
	}
}

// answersAll runs lines of which it is only known that they end with an answer
// or with a sentence.
func (c *commandTest) answersAll(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		r := c.runLine(line)
		switch {
		case r.code == 0 && r.err == "":
		case r.code != 1 && r.code != cli.ExitOwnFailure, !strings.HasPrefix(r.err, "crishim: "), strings.Contains(r.err, "rpc error"):
			t.Errorf("%s: got %+v", line, r)
		}
	}
}

// Runtimes that leave out what they must not are still answered in sentences.
func TestBrokenRuntimes(t *testing.T) {
	for _, name := range []string{"no metadata", "empty answers", "big lists in one piece only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := oddNode(t, stubcri.Profiles()[name])
			c.answersAll(t, slices.Concat(readingLines, otherLines))
		})
	}
}

// Objects without a name are still found by ID.
func TestNoMetadataByID(t *testing.T) {
	t.Parallel()
	c := oddNode(t, stubcri.Profiles()["no metadata"])
	for verb, list := range map[string][]string{"inspect": {"ps", "-q"}, "inspectp": {"pods", "-q"}, "inspecti": {"images", "-q"}} {
		ids := strings.Fields(c.run(list...).out)
		if len(ids) < 3 {
			t.Fatalf("%v: got %v", list, ids)
		}
		for _, id := range ids {
			if r := c.run(verb, id); r.code != 0 || !strings.Contains(r.out, id) {
				t.Errorf("%s %s: got %+v", verb, id, r)
			}
		}
	}
}

// linesByID has a line for every verb that takes a listed ID. $C is a running
// container, $N a created one, $P and $Q are pods, $I is an image.
var linesByID = []string{
	"inspect $C", "inspect -o table $C", "inspect -a -o name", "inspectp $P", "inspectp -o table $P", "inspecti $I", "inspecti -o table $I",
	"describe $P", "logs $C", "exec $C echo hello", "exec --sync $C echo hello", "exec --last 1 --quiet echo hello",
	"stats $C", "stats -a", "statsp $P", "stats -o name", "statsp -o name", "events -o table", "events -o name",
	"cp $C:/etc/hostname -", "debug --image busybox $C true", "port-forward $P 0:80", "attach $C",
	"update --memory 64Mi $C", "update-runtime-config --pod-cidr 10.1.0.0/16", "checkpoint --export $DIR/cp.tar $C",
	"create $P $DIR/c.json", "run -d --pod $P busybox", "run $DIR/c.json $DIR/p.json", "pull busybox", "pods -o wide", "ps -a -o wide", "ps -a -r", "images -o wide",
	"wait --timeout 300ms --for running $C", "wait --timeout 300ms --for ready $P", "start $N", "stop -t 0 $C", "rm --force --dry-run $C", "rm -f $C", "wait --timeout 300ms --for removed nobody",
	"gc --dry-run", "rmi --prune --dry-run", "rmi $I", "stopp $P", "rmp -f $P", "rmp --all --force --dry-run", "delete $Q",
	"__complete exec a", "__complete inspectp a", "__complete rmi a",
}

// A runtime without names works with IDs. A runtime with empty answers crashes
// no verb.
func TestEveryVerbOnWhatHasNoNames(t *testing.T) {
	for name, works := range map[string]bool{"no metadata": true, "empty answers": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, line := range linesByID {
				c := oddNode(t, stubcri.Profiles()[name])
				dir := t.TempDir()
				made := c.stub.AddCreated(c.stub.AddPod("default", "spare"), "made")
				vars := []string{"$DIR/c.json", c.file("c.json", `{"metadata": {"name": "c"}, "image": {"image": "busybox"}}`),
					"$DIR/p.json", c.file("p.json", `{"metadata": {"name": "p"}, "log_directory": "/nonexistent"}`), "$DIR", dir, "$N", made}
				for name, list := range map[string]string{"$C": "ps -q", "$P": "pods -q -s ready", "$Q": "pods -q -s notready", "$I": "images -q"} {
					if strings.Contains(line, name) {
						vars = append(vars, name, strings.Fields(c.run(strings.Fields(list)...).out + " none")[0])
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				if call := goOn[strings.Fields(line)[0]]; call != "" {
					c.stub.Before(call, func(context.Context) { cancel() })
				}
				r := c.runAs(ctx, "crishim", strings.Fields(strings.NewReplacer(vars...).Replace(line))...)
				cancel()
				if problem := spoken(r.err); problem != "" {
					t.Errorf("%s: %s", line, problem)
				}
				if r.code != 0 && r.err == "" {
					t.Errorf("%s: %+v", line, r)
				}
				if strings.Contains(r.err, "container  ") || strings.Contains(r.err, "==>  <==") {
					t.Errorf("%s: it speaks of nothing: %+v", line, r)
				}
				if works && r.code != 0 && !slices.Contains(namesNeeded, line) {
					t.Errorf("%s: %+v", line, r)
				}
			}
		})
	}
}

// goOn are the verbs that end when somebody ends them, once the runtime has got
// their call.
var goOn = map[string]string{"events": "GetContainerEvents", "attach": "Attach", "port-forward": "PortForward"}

// namesNeeded are lines that cannot do without what is missing: the path of a
// log, the name of a pod that was applied; and attach was cut off.
var namesNeeded = []string{"logs $C", "describe $P", "delete $Q", "attach $C"}

func TestProfilesAreTested(t *testing.T) {
	tested := []string{"no metadata", "empty answers", "big lists in one piece only"}
	if len(stubcri.Profiles()) != 9+len(tested) {
		t.Errorf("%d profiles; TestRuntimes and TestBrokenRuntimes name them", len(stubcri.Profiles()))
	}
}
