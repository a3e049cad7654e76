package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// hostsTest is some runtimes that stand for hosts. Their endpoints do, too, for --hosts.
type hostsTest struct {
	*commandTest
	stubs []*stubcri.Server
}

func withHosts(t *testing.T, n int) *hostsTest {
	t.Helper()
	h := &hostsTest{commandTest: withStub(t, stubcri.Options{})}
	dir := filepath.Dir(stubcri.SocketPath(t))
	for i := range n {
		at := testNow.Add(time.Duration(-i) * time.Hour)
		s := stubcri.Start(t, stubcri.Options{Socket: filepath.Join(dir, fmt.Sprintf("h%03d", i)), Now: func() time.Time { return at }})
		pod := s.AddPod("default", fmt.Sprint("web", i))
		s.AddContainer(pod, fmt.Sprint("app", i))
		s.AddContainer(pod, "common")
		s.AddImage("example.com/app:1")
		h.stubs = append(h.stubs, s)
	}
	return h
}

func (h *hostsTest) hosts() string {
	var names []string
	for _, s := range h.stubs {
		names = append(names, s.Endpoint)
	}
	return strings.Join(names, ",")
}

// TestAgesCountFromTheAnswer: a pod that is made while a command line connects, as the plugin's own, is not from the future.
func TestAgesCountFromTheAnswer(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.AddContainer(c.stub.AddPod("default", "web"), "app")
	for verb, method := range map[string]string{"ps": "ListContainers", "pods": "ListPodSandbox"} {
		var answered atomic.Bool
		c.stub.Before(method, func(context.Context) { answered.Store(true) })
		c.now = func() time.Time {
			if answered.Load() {
				return testNow.Add(time.Minute)
			}
			return testNow.Add(-time.Minute)
		}
		if got := c.run(verb); got.code != 0 || !strings.Contains(got.out, "About a minute ago") {
			t.Errorf("%s: got %+v", verb, got)
		}
	}
}

// run runs a command line on all hosts; they are called HOST0, HOST1, ... in its result.
func (h *hostsTest) run(args ...string) result {
	h.t.Helper()
	r := h.commandTest.run(append([]string{"--hosts", h.hosts()}, args...)...)
	return result{r.code, h.named(r.out), h.named(r.err)}
}

func (h *hostsTest) named(text string) string {
	for i, s := range h.stubs {
		text = strings.ReplaceAll(text, s.Endpoint, fmt.Sprint("HOST", i))
	}
	return text
}

// fields are the lines of a table, with one space between cells.
func fields(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestTablesOfHosts(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	for line, want := range map[string][]string{
		"ps --columns name,node":                          {"NAME NODE", "common HOST0", "app0 HOST0", "common HOST1", "app1 HOST1"},
		"ps --columns name --sort name":                   {"NAME", "app0", "app1", "common", "common"},
		"ps --columns name --sort -created":               {"NAME", "common", "app0", "common", "app1"},
		"ps --columns name,node --sort -node":             {"NAME NODE"},
		"ps --columns node --no-headers":                  {"HOST0", "HOST0", "HOST1", "HOST1"},
		"pods --columns node,name,ready":                  {"NODE NAME READY", "HOST0 web0 2/2", "HOST1 web1 2/2"},
		"images --columns node,image,tag example.com/app": {"NODE IMAGE TAG", "HOST0 example.com/app 1", "HOST1 example.com/app 1"},
		"version":           {"NODE RUNTIME VERSION API", "HOST0 stubcri 1.0.0 v1", "HOST1 stubcri 1.0.0 v1"},
		"runtime-config":    {"NODE CGROUP DRIVER", "HOST0 SYSTEMD", "HOST1 SYSTEMD"},
		"ps --name nothing": {"NODE CONTAINER IMAGE CREATED STATE NAME RESTARTS POD ID POD NAMESPACE"},
	} {
		r := h.run(strings.Fields(line)...)
		got := fields(r.out)
		if r.code != 0 || r.err != "" || !slices.Equal(got[:min(len(want), len(got))], want) || len(want) > 1 && len(got) != len(want) {
			t.Errorf("%s: exit %d, got %q, want %q\n%s", line, r.code, got, want, r.err)
		}
	}
	if got := len(strings.Fields(h.run("ps", "-q").out)); got != 4 {
		t.Errorf("ps -q has %d ids", got)
	}
}

// On several hosts each element of a document has its node.
func TestDocumentsOfHosts(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	nodes := func(items []map[string]any) (out []any) {
		for _, item := range items {
			out = append(out, item["node"])
		}
		return out
	}
	var list struct{ Items, Containers []map[string]any }
	if r := h.run("ps", "-o", "json"); json.Unmarshal([]byte(r.out), &list) != nil || fmt.Sprint(nodes(list.Containers)) != "[HOST0 HOST0 HOST1 HOST1]" {
		t.Errorf("ps -o json: %s%s", r.out, r.err)
	}
	var array []map[string]any
	for _, line := range []string{"info", "inspectp web0", "inspect common", "imagefsinfo", "version -o json"} {
		r := h.run(strings.Fields(line)...)
		if json.Unmarshal([]byte(r.out), &array) != nil || array[0]["node"] != "HOST0" {
			t.Errorf("%s: exit %d, %s%s", line, r.code, r.out, r.err)
		}
	}
	for line, want := range map[string]string{
		"ps --sort name -o jsonpath={.containers[*].node}":                       "HOST0 HOST0 HOST1 HOST1\n",
		"pods -o go-template={{range.items}}{{.node}}{{.metadata.name}},{{end}}": "HOST0web0,HOST1web1,\n",
		"inspectp -o name web1": "default/web1\n",
	} {
		if r := h.run(strings.Fields(line)...); r.out != want {
			t.Errorf("%s: got %q, want %q\n%s", line, r.out, want, r.err)
		}
	}
	for line := range strings.Lines(h.run("pods", "-o", "jsonl").out) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil || one["node"] == nil {
			t.Errorf("jsonl: %q, %v", line, err)
		}
	}
}

// With -o jsonl what has answered is shown while others have not.
func TestHostsStream(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	// A host waits until the other's answer has been written.
	shown := make(chan struct{})
	h.stubs[0].Before("ListPodSandbox", func(ctx context.Context) {
		select {
		case <-shown:
		case <-ctx.Done():
		}
	})
	h.shown = func(text string) {
		if strings.Contains(text, "web1") {
			close(shown)
		}
	}
	if r := h.run("pods", "-o", "jsonl"); r.code != 0 || strings.Count(r.out, "\n") != 2 {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
}

// Failed hosts are listed after the results, one per line.
func TestHostsThatFail(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 3)
	h.stubs[1].Stop()
	h.stubs[2].Before("ListContainers", func(context.Context) { h.stubs[2].Stop() })
	hosts := h.hosts() + ",unix:///nonexistent/x.sock"
	c := *h.commandTest
	r := c.run("--hosts", hosts, "ps", "--columns", "node,name")
	lines := strings.Split(strings.TrimSpace(h.named(r.err)), "\n")
	if r.code != 1 || !slices.Equal(fields(h.named(r.out)), []string{"NODE NAME", "HOST0 common", "HOST0 app0"}) {
		t.Errorf("exit %d, got %q", r.code, fields(h.named(r.out)))
	}
	for i, want := range []string{"crishim: HOST1: connect to HOST1: ", "crishim: HOST2: ", "crishim: unix:///nonexistent/x.sock: connect to unix:///nonexistent/x.sock: there is no such socket"} {
		found := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, "hint: ") })
		if i >= len(found) || !strings.HasPrefix(found[i], want) || len(found) != 3 {
			t.Errorf("got\n%s\nwant %d failures, and number %d begin with %q", strings.Join(lines, "\n"), 3, i, want)
		}
	}
	// None is left: no document, and each is an object for programs.
	r = c.run("--hosts", "unix:///nonexistent/x.sock,unix:///nonexistent/y.sock", "--error-format=json", "ps", "-o", "json")
	var failure struct {
		Error struct{ Node, Message string }
	}
	if r.code != 1 || r.out != "" || strings.Count(r.err, "\n") != 2 || json.Unmarshal([]byte(strings.SplitN(r.err, "\n", 2)[0]), &failure) != nil ||
		failure.Error.Node != "unix:///nonexistent/x.sock" || strings.HasPrefix(failure.Error.Message, failure.Error.Node) {
		t.Errorf("got %+v", r)
	}
}

// A host that is not there takes nothing away from what a verb does on another.
func TestEveryVerbNextToAHostThatFails(t *testing.T) {
	t.Parallel()
	dead := stubcri.Start(t, stubcri.Options{})
	dead.Stop()
	lines := faultLines(faultNode(t))
	for verb := range namedCommands() {
		if !cli.OnNodes(verb).Several {
			continue
		}
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			line, c := lines[verb], faultNode(t)
			r := c.run(append([]string{"--hosts", dead.Endpoint + "," + c.stub.Endpoint, "--yes"}, line.args...)...)
			failed, _, _ := strings.Cut(r.err, "\n")
			if r.code != 1 || !strings.HasPrefix(failed, "crishim: "+dead.Endpoint+": connect to ") || strings.Contains(r.err, "crishim: "+c.stub.Endpoint) {
				t.Errorf("got %+v", r)
			}
			methods, want := c.stub.Methods(), line.methods(t)
			inBackground := func(method string) bool { return verb == "pull" && method == "ImageFsInfo" } // by the progress, which may end first
			methods, want = slices.DeleteFunc(methods, inBackground), slices.DeleteFunc(slices.Clone(want), inBackground)
			if slices.Sort(methods); !slices.Equal(slices.Compact(methods), want) {
				t.Errorf("calls are %q, want %q", methods, want)
			}
		})
	}
}

// A host that does not answer has its deadline, and what it calls is cancelled.
func TestAHostThatHangs(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 1)
	began, ended := make(chan struct{}), make(chan struct{})
	h.stubs[0].Before("Version", func(ctx context.Context) {
		close(began)
		<-ctx.Done()
		close(ended)
	})
	h.run("--node-timeout", "2s", "ps").want(t, 1, "", "crishim: HOST0: no answer within 2s\n")
	select {
	case <-began:
		<-ended
	default: // under load the deadline may have come before the call
	}
}

// A change on several hosts is shown before it is made.
func TestHostsChange(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	stopped := func() (n int) {
		for _, s := range h.stubs {
			for _, call := range s.Calls() {
				if _, ok := call.Request.(*runtimeapi.StopContainerRequest); ok {
					n++
				}
			}
		}
		return n
	}
	r := h.run("stop", "common")
	lines := fields(r.out)
	slices.Sort(lines)
	if r.code != 1 || stopped() != 0 || !slices.Equal(lines, []string{"HOST0 | Would stop common", "HOST1 | Would stop common"}) || r.err != "crishim: nothing is done yet: this is on 2 hosts\nhint: --yes does it\n" {
		t.Errorf("got %+v", r)
	}
	// The host without the container is no reason to leave the hint out.
	r = h.run("stop", "app0")
	if r.code != 1 || stopped() != 0 || r.out != "HOST0 | Would stop app0\n" || !strings.Contains(r.err, `crishim: HOST1: there is no container "app0"`) || !strings.Contains(r.err, "crishim: nothing is done yet: this is on 1 host\nhint: --yes does it\n") {
		t.Errorf("got %+v", r)
	}
	if r := h.run("stop", "--dry-run", "common"); r.code != 0 || stopped() != 0 {
		t.Errorf("got %+v", r)
	}
	r = h.run("--yes", "stop", "common")
	lines = fields(r.out)
	slices.Sort(lines)
	if r.code != 0 || stopped() != 2 || !slices.Equal(lines, []string{"HOST0 | common", "HOST1 | common"}) {
		t.Errorf("got %+v", r)
	}
	// One host is no reason to ask, nor a host that is named twice.
	one := h.stubs[0].Endpoint
	if r := h.commandTest.run("--hosts", one+","+one, "stop", "app0"); r.code != 0 || stopped() != 3 || r.out != one+" | app0\n" {
		t.Errorf("got %+v", r)
	}
	for name, command := range namedCommands() {
		if name != "exec" && name != "pull" && cli.OnNodes(name).Several && cli.OnNodes(name).Rights != kube.RightsRead && !slices.ContainsFunc(command.Flags, func(f urfave.Flag) bool { return f.Names()[0] == "dry-run" }) {
			t.Errorf("%s changes things and cannot show what", name)
		}
	}
}

// exec and pull change things, too. They have no --dry-run: on one host one runs them or not.
func TestExecAndPullOnHostsAreShownFirst(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	for line, want := range map[string]string{
		"exec common touch /x":               "Would run in common: touch /x",
		"exec --name common --parallel date": "Would run in common: date",
		"exec -q --name=. echo \x1b[2J":      "",
		"pull example.com/app:2":             "Would pull example.com/app:2",
	} {
		r := h.run(strings.Fields(line)...)
		lines := fields(strings.NewReplacer("web0/", "", "web1/", "").Replace(r.out))
		slices.Sort(lines)
		if r.code == 0 || want != "" && !slices.Equal(lines, []string{"HOST0 | " + want, "HOST1 | " + want}) || strings.Contains(r.out, "\x1b") || r.err != "crishim: nothing is done yet: this is on 2 hosts\nhint: --yes does it\n" {
			t.Errorf("%s: got %+v", line, r)
		}
	}
	for _, s := range h.stubs {
		for _, method := range s.Methods() {
			if strings.HasPrefix(method, "Exec") || method == "PullImage" {
				t.Errorf("%s was called", method)
			}
		}
	}
	if r := h.run("--yes", "pull", "example.com/app:2"); r.code != 0 || strings.Count(r.out, "Image is up to date") != 2 {
		t.Errorf("got %+v", r)
	}
	if r := h.commandTest.run("--hosts", h.stubs[0].Endpoint, "exec", "common", "echo", "done"); r.code != 0 || !strings.HasSuffix(r.out, " | done\n") {
		t.Errorf("one host: got %+v", r)
	}
}

// Only verbs that are known to change something get the rights to it on a node, and a directory of logs there.
func TestRightsOnNodes(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"top", "help", "completion", "nosuch"} {
		if got, want := cli.OnNodes(verb), (cli.OnNode{Rights: kube.RightsRead}); got != want {
			t.Errorf("%s: got %+v", verb, got)
		}
	}
	for _, verb := range []string{"run", "runp", "create", "start", "debug"} {
		if got, want := cli.OnNodes(verb), (cli.OnNode{Rights: kube.RightsChange, Logs: true}); got != want {
			t.Errorf("%s: got %+v", verb, got)
		}
	}
	for verb := range namedCommands() { // a new verb that changes things has to be listed
		if on := cli.OnNodes(verb); on == (cli.OnNode{Rights: kube.RightsRead}) && !slices.Contains([]string{"top", "completion", "history", "diff", "events", "wait", "save"}, verb) {
			t.Errorf("%s is not in the table of what verbs need on nodes", verb)
		}
	}
}

func TestExecOnHosts(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	r := h.run("--yes", "exec", "--sync", "app1", "sh", "-c", "echo no; echo why >&2; exit 3")
	if r.code != 1 || r.out != "HOST1 | no\n" || !strings.HasPrefix(r.err, "HOST1 | why\ncrishim: HOST0: there is no container \"app1\"\ncrishim: HOST1: exit status 3\nhint: ") {
		t.Errorf("got %+v", r)
	}
}

// A compromised node cannot write to the terminal what looks like another node's answer.
func TestHostileNode(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	const evil = `printf 'one\ttab\r\nHOST1 | forged\r\033[1A\n'; printf 'no\rHOST1 | forged\n' >&2; exit 3`
	h.terminal = true
	r := h.run("--yes", "exec", "--sync", "app0", "sh", "-c", evil)
	want := result{1, "HOST0 | one\ttab\nHOST0 | HOST1 | forged" + `\x0d\x1b[1A` + "\n", `HOST0 | no\x0dHOST1 | forged` + "\ncrishim: HOST0: exit status 3\ncrishim: HOST1: there is no container \"app0\"\n"}
	if r.code != want.code || r.out != want.out || !strings.HasPrefix(r.err, want.err) {
		t.Errorf("got %+v", r)
	}
	h.terminal = false
	if r := h.run("--yes", "exec", "--sync", "app0", "sh", "-c", evil); !strings.HasPrefix(r.out, "HOST0 | one\ttab\r\nHOST0 | HOST1 | forged\r\x1b[1A\n") {
		t.Errorf("got %+v", r)
	}
	// Its errors and warnings are data, too.
	h.stubs[0].Fail("ListContainers", status.Error(codes.Internal, "bad\r\ncrishim: HOST1: forged\x1b[2J"))
	if r := h.run("ps", "-q"); r.code != 1 || strings.Count(r.out, "\n") != 2 || r.err != `crishim: HOST0: bad\x0d\x0acrishim: HOST1: forged\x1b[2J`+"\n" {
		t.Errorf("got %+v", r)
	}
}

// A verb that runs on a node as a whole speaks as that node. On a terminal its result is lines and colours, except for logs.
func TestHostileNodeOfAVerbThere(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 1)
	h.throughRelays(true)
	errs := "crishim: gone\x1b[2J\nhint: run this\n"
	h.cluster.There = func(_ context.Context, streams stream.Streams, _ string, _ cli.NodeLine) error {
		for _, part := range []string{"\x1b[3", "1mbad\x1b[0m \xc3", "\xa9\x1b[2J\x1b[8m\rok\nmore"} {
			fmt.Fprint(streams.Out, part)
		}
		fmt.Fprint(streams.Err, errs)
		return &stream.ExitError{Code: 3}
	}
	raw := result{3, "\x1b[31mbad\x1b[0m é\x1b[2J\x1b[8m\rok\nmore", "crishim: gone\x1b[2J\nhint: run this\n"}
	for _, c := range []struct {
		line     string
		terminal bool
		want     result
	}{
		{"why web", true, result{3, "\x1b[31mbad\x1b[0m é" + `\x1b[2J\x1b[8m\x0dok` + "\nmore\n", `node-0 | crishim: gone\x1b[2J` + "\nnode-0 | hint: run this\n"}},
		{"why web", false, result{3, raw.out, "node-0 | crishim: gone\x1b[2J\nnode-0 | hint: run this\n"}},
		{"--error-format=json why web", false, result{3, raw.out, `{"error":{"node":"node-0","code":"failed","message":"gone\u001b[2J","hint":"run this"}}` + "\nnode-0 | text\n"}},
		{"logs web", false, result{3, raw.out, "crishim: gone\x1b[2J\nhint: run this\n"}},
		{"logs web", true, result{3, "\x1b[31mbad\x1b[0m é" + `\x1b[2J\x1b[8m\x0dok` + "\nmore\n", `crishim: gone\x1b[2J` + "\nhint: run this\n"}},
	} {
		h.terminal, errs = c.terminal, "crishim: gone\x1b[2J\nhint: run this\n"
		if strings.Contains(c.line, "json") {
			errs = `{"error":{"node":"other","code":"failed","message":"gone\u001b[2J","hint":"run this"}}` + "\ntext\n"
		}
		if got := h.commandTest.run(strings.Fields(c.line)...); got != c.want {
			t.Errorf("%s, terminal %t: got %#v, want %#v", c.line, c.terminal, got, c.want)
		}
	}
}

// An empty element takes two bytes of an answer, and hundreds of memory.
func TestTooLargeListOfANode(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	h.stubs[0] = stubcri.Start(t, stubcri.Options{Change: func(answer proto.Message) {
		if list, ok := answer.(*runtimeapi.ListContainersResponse); ok {
			list.Containers = slices.Repeat([]*runtimeapi.Container{{}}, 2<<20)
		}
	}})
	r := h.run("--timeout", "1m", "ps", "-q") // the race detector takes its time
	if r.code != 1 || strings.Count(r.out, "\n") != 2 || r.err != "crishim: HOST0: list containers: the answer has more than 1048576 fields\n" {
		t.Errorf("got %d lines, %s", strings.Count(r.out, "\n"), r.err)
	}
}

// throughRelays runs command lines on nodes whose runtimes are only reached by relays, which run in this process.
func (h *hostsTest) throughRelays(one bool) *relays {
	h.t.Helper()
	r := &relays{h: h, open: map[string][]net.Conn{}}
	names := []string{"node-0", "node-1", "node-2"}[:len(h.stubs)]
	if one {
		names = names[:1]
	}
	h.cluster = &cli.Cluster{
		One: one, Parallel: 8, Close: func(string) {},
		Nodes: func(context.Context) ([]string, error) { return names, nil },
		Open: func(_ context.Context, node string, line cli.NodeLine) (func(context.Context, string, string) (net.Conn, error), error) {
			return func(ctx context.Context, network, address string) (net.Conn, error) {
				return r.dial(node, line.Verb, network, address)
			}, nil
		},
	}
	return r
}

type relays struct {
	h       *hostsTest
	running sync.WaitGroup

	mu   sync.Mutex
	open map[string][]net.Conn // by node
	said []string              // the arguments
}

func (r *relays) dial(node, verb, network, address string) (net.Conn, error) {
	words := []string{"crishim", "__relay", verb}
	if network == "tcp" {
		words = append(words, address)
	}
	near, far := net.Pipe()
	env := testProcess()
	endpoint := r.h.stubs[int(node[len(node)-1]-'0')].Endpoint
	env.LookupEnv = func(name string) (string, bool) {
		return map[string]string{"CONTAINER_RUNTIME_ENDPOINT": endpoint}[name], name == "CONTAINER_RUNTIME_ENDPOINT"
	}
	var errs test.Buffer
	env.In, env.Out, env.Err = far, far, &errs
	r.mu.Lock()
	r.open[node], r.said = append(r.open[node], near), append(r.said, strings.Join(words, " "))
	r.mu.Unlock()
	r.running.Go(func() {
		commands.Main(context.Background(), words, env)
		far.Close()
	})
	ready := make([]byte, len(kube.RelayReady))
	if _, err := io.ReadFull(near, ready); err != nil {
		return nil, errors.New(errs.String())
	}
	return near, nil
}

// A runtime behind a relay is an endpoint as any other: calls, streams, terminals of names.
func TestThroughARelay(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	r := h.throughRelays(true)
	h.stdin = strings.Repeat("x", 100_000)
	for line, want := range map[string]result{
		"ps --columns name --no-headers":              {0, "common\napp0\n", ""},
		"exec app0 sh -c echo.out;echo.err>&2;exit.7": {7, "out\n", "err\n"},
		"exec -i app0 cat":                            {0, h.stdin, ""},
		"inspect app1":                                {1, "", "crishim: there is no container \"app1\"\n"},
	} {
		words := strings.Fields(line)
		for i := range words {
			words[i] = strings.NewReplacer("echo.", "echo ", "exit.", "exit ").Replace(words[i])
		}
		got := h.commandTest.run(words...)
		if got.code != want.code || got.out != want.out || !strings.HasPrefix(got.err, want.err) {
			t.Errorf("%s: exit %d, %.100q, %q", line, got.code, got.out, got.err)
		}
	}
	r.running.Wait() // none is left
	if !slices.ContainsFunc(r.said, func(line string) bool { return strings.HasPrefix(line, "crishim __relay exec 127.0.0.1:") }) || slices.ContainsFunc(r.said, func(line string) bool { return strings.Contains(line, "app0") }) {
		t.Errorf("relays were called as %q", r.said)
	}
}

// A relay waits as long as its client for a runtime that has much to do.
func TestRelayOfASlowRuntime(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 1)
	h.throughRelays(true)
	var asked atomic.Bool
	h.stubs[0].Before("Version", func(context.Context) {
		if !asked.Swap(true) {
			time.Sleep(2100 * time.Millisecond)
		}
	})
	if got := h.commandTest.run("ps", "-q"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

// A relay that goes away ends the call with one sentence, and takes nothing from other nodes.
func TestARelayThatGoesAway(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	r := h.throughRelays(false)
	h.stubs[0].Before("ListContainers", func(ctx context.Context) {
		r.mu.Lock()
		for _, conn := range r.open["node-0"] {
			conn.Close()
		}
		r.mu.Unlock()
		<-ctx.Done()
	})
	got := h.commandTest.run("ps", "--columns", "node,name", "--no-headers")
	if got.code != 1 || !slices.Equal(fields(got.out), []string{"node-1 common", "node-1 app1"}) || strings.Count(got.err, "crishim:") != 1 || !strings.HasPrefix(got.err, "crishim: node-0: list containers: node node-0 is not available: ") {
		t.Errorf("got %+v", got)
	}
}

// A relay reaches the loopback of its node, and nothing else.
func TestRelayRefuses(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	for _, address := range []string{"192.0.2.1:80", "localhost:80", "[fe80::1]:80", "/run/x.sock", ""} {
		c.run("__relay", "exec", address).want(t, 1, "", fmt.Sprintf("crishim: %q is not an address of the loopback\n", address))
	}
	if r := c.run("__relay", "exec", "127.0.0.1:1"); r.code != 1 || r.out != "" || !strings.Contains(r.err, "connection refused") {
		t.Errorf("got %+v", r)
	}
	c.vars["CONTAINER_RUNTIME_ENDPOINT"] = "unix:///nonexistent/x.sock"
	if r := c.run("__relay", "ps"); r.code != 1 || r.out != "" || !strings.HasPrefix(r.err, "crishim: connect to unix:///nonexistent/x.sock: there is no such socket\n") {
		t.Errorf("got %+v", r)
	}
}

// A command line in a pod ends with its standard input, though it does not read that.
func TestAttendedCommandLine(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.stub.Before("ListContainers", func(ctx context.Context) { <-ctx.Done() })
	c.run(kube.NodeWord, "80", "ps").want(t, 130, "", "")
}

// __idle, which keeps a pod of crishim running, ends with the runtime: a restarted runtime has a new socket.
func TestIdleEndsWithTheRuntime(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(test.SocketDir(t), "x.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := &commandTest{t: t, vars: map[string]string{"CONTAINER_RUNTIME_ENDPOINT": "unix://" + socket}}
	ended := make(chan result, 1)
	go func() { ended <- c.run("__idle") }()
	for range 2 { // a runtime ends connections that nothing is said in, and goes on
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	(<-ended).want(t, 1, "", "crishim: nothing listens at "+socket+" any more\n")
}

func TestHostsUsage(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t, vars: map[string]string{"HOME": t.TempDir()}}
	empty := c.file("hosts", "# none\n\n")
	for line, want := range map[string]string{
		"--hosts a,,b ps":                 "a host is empty",
		"--hosts= ps":                     "a host is empty",
		"--hosts -oProxyCommand=x ps":     "must not begin with a dash",
		"--hosts a:b ps":                  "invalid --hosts \"a:b\"",
		"--hosts-file " + empty + " ps":   "names no host",
		"--hosts-file /nonexistent ps":    "no such file",
		"--hosts a --parallel 0 ps":       "invalid --parallel \"0\"",
		"--hosts a -i unix:///x ps":       "--image-endpoint does not go with several hosts",
		"-r unix:///x -r b:c ps":          "invalid endpoint \"b:c\"",
		"-r unix:///x -r /y attach web":   "attach does not run on several endpoints",
		"--hosts a --compat=crictl ps":    "does not go with --compat=crictl",
		"--yes ps":                        "--yes goes with several endpoints: --hosts",
		"--hosts a events":                "events does not run on several hosts",
		"--hosts a serve":                 "serve does not run on several hosts",
		"--hosts a exec -it web sh":       "does not run on several hosts",
		"--hosts a logs web":              "logs does not run on several hosts",
		"--hosts a ps -w":                 "ps --watch does not run on several hosts",
		"--hosts a ps --columns nosuch":   "unknown column",
		"--hosts web* ps":                 ".ssh/config",
		"--hosts a --node-timeout=-1s ps": "must not be negative",
		"ps --columns node":               "unknown column",
		"--hosts a ps -o nosuch":          "unknown output format",
	} {
		r := c.run(strings.Fields(line)...)
		want2 := 2
		if strings.Contains(line, "exec") {
			want2 = 125
		}
		if strings.Contains(line, "crictl") {
			want2 = 1
		}
		if r.code != want2 || r.out != "" || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit %d, want %d and %q\n%s%s", line, r.code, want2, want, r.out, r.err)
		}
	}
}

// Fifty hosts are asked at once, and no more than --parallel.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 1)
	socket := strings.TrimPrefix(h.stubs[0].Endpoint, "unix://")
	var names []string
	for i := range 50 { // other names of one runtime
		names = append(names, fmt.Sprintf("unix://%s/l%d", filepath.Dir(socket), i))
		if err := os.Symlink(socket, strings.TrimPrefix(names[i], "unix://")); err != nil {
			t.Fatal(err)
		}
	}
	for _, most := range []int{50, 3} {
		var inFlight, reached atomic.Int32
		all := make(chan struct{})
		h.stubs[0].Before("ListContainers", func(ctx context.Context) {
			n := inFlight.Add(1)
			defer inFlight.Add(-1)
			if n > int32(most) {
				t.Errorf("%d at once with --parallel %d", n, most)
			}
			if reached.Add(1) == int32(most) {
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
		})
		// The usual timeouts are for hosts with processors of their own.
		r := h.commandTest.run("--hosts", strings.Join(names, ","), "--parallel", fmt.Sprint(most), "--connect-timeout", "5m", "--node-timeout", "5m", "ps", "--no-headers")
		if r.code != 0 || r.err != "" || strings.Count(r.out, "\n") != 100 {
			t.Errorf("--parallel %d: exit %d, %d lines\n%s", most, r.code, strings.Count(r.out, "\n"), r.err)
		}
	}
}

// A user who gives up leaves no host behind: every call ends.
func TestHostsInterrupted(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting, ended sync.WaitGroup
	for _, s := range h.stubs {
		waiting.Add(1)
		ended.Add(1)
		s.Before("ListContainers", func(call context.Context) {
			waiting.Done()
			<-call.Done()
			ended.Done()
		})
	}
	go func() {
		waiting.Wait()
		cancel()
	}()
	r := h.runAs(ctx, "crishim", "--hosts", h.hosts(), "ps")
	ended.Wait()
	if r.code != 1 || r.out != "" || strings.Count(r.err, "\n") != 1 {
		t.Errorf("got %+v", r)
	}
}

// Names of hosts come from files and from ssh.
func TestNamesOfHosts(t *testing.T) {
	t.Parallel()
	h := withHosts(t, 2)
	file := h.file("hosts", "# all\n"+h.stubs[0].Endpoint+" "+h.stubs[1].Endpoint+"\n"+h.stubs[0].Endpoint+" # again\n")
	if r := h.commandTest.run("--hosts-file", file, "pods", "--no-headers"); r.code != 0 || strings.Count(r.out, "\n") != 2 {
		t.Errorf("got %+v", r)
	}
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := "Host web-1 web-2 db\n  User joe\nhost=web-3\nHost *\n  Port 22\n"
	if err := os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	h.vars["HOME"] = home
	if r := h.commandTest.run("--hosts", "web-*", "attach", "x"); !strings.Contains(r.err, "attach does not run") {
		t.Errorf("got %+v", r)
	}
	for word, want := range map[string]string{"": "db\nweb-1\nweb-2\nweb-3\n", "web-1,d": "web-1,db\n"} {
		if r := h.commandTest.run("__complete", "--hosts", word); r.out != want {
			t.Errorf("completion of %q: got %q, want %q", word, r.out, want)
		}
	}
}

func namedCommands() map[string]*urfave.Command {
	named := map[string]*urfave.Command{}
	for _, c := range testApp().Commands {
		named[c.Name] = c
	}
	return named
}
