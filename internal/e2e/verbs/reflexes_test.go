package verbs

import (
	"errors"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// Lists understand filter flags of docker and kubectl.
func TestListsWithFlagsOfOthers(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for line, want := range map[string]string{
		"ps -a -n prod":                        "prod/db/postgres prod/db/migrate",
		"ps -aA":                               "prod/db/postgres default/web/nginx prod/db/migrate",
		"ps -a --last 1":                       "prod/db/postgres",
		"ps -l":                                "prod/db/postgres",
		"ps -a -l app=db":                      "prod/db/postgres prod/db/migrate",
		"ps -f status=exited":                  "prod/db/migrate",
		"ps -a --filter name=^ng":              "default/web/nginx",
		"ps -f label=app=web --filter pod=web": "default/web/nginx",
		"ps -n nowhere":                        "",
		"pods -n default":                      "default/web",
		"pods -A":                              "prod/db default/web",
		"pods -f status=ready -f name=web":     "default/web",
	} {
		r := c.run(append(strings.Fields(line), "-o", "name")...)
		if got := strings.Join(strings.Fields(r.out), " "); got != want || r.code != 0 {
			t.Errorf("%s: got %q, %+v, want %q", line, got, r, want)
		}
	}
	for line, want := range map[string]string{
		"ps -f status=dead": "invalid --filter \"status=dead\": the status must be created, running, exited or unknown",
		"ps -f exited=1":    "invalid --filter \"exited=1\": must be id=ID, name=REGEX, label=KEY[=VALUE], status=STATE, ancestor=IMAGE or pod=POD",
	} {
		if r := c.run(strings.Fields(line)...); r.code != 2 || !strings.HasPrefix(r.err, "crishim: "+want+"\n") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	// crictl has one meaning for each letter.
	if r := c.runAs(t.Context(), "crictl", "ps", "-n", "prod"); r.code != 1 || !strings.Contains(r.err, `"prod"`) {
		t.Errorf("crictl ps -n prod: %+v", r)
	}
	for _, line := range []string{"ps -A", "ps -a -l app=db", "exec web -it -- ls"} {
		if r := c.runAs(t.Context(), "crictl", strings.Fields(line)...); strings.Contains(r.out, "nginx") || strings.Contains(r.out, "migrate") {
			t.Errorf("crictl %s: %+v", line, r)
		}
	}
}

// Pods and containers as kubectl names them; what is only looked at may be named by its container.
func TestNamesAsKubectlHasThem(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for line, want := range map[string]string{
		"inspectp pod/web -o jsonpath={.status.metadata.name}":         "web",
		"inspectp web/nginx -o jsonpath={.status.metadata.name}":       "web",
		"inspectp prod/db/migrate -o jsonpath={.status.metadata.name}": "db",
		"inspectp -n prod db -o jsonpath={.status.metadata.name}":      "db",
		"inspect pods/web -o jsonpath={.status.metadata.name}":         "nginx",
		"inspect -n default nginx -o jsonpath={.status.metadata.name}": "nginx",
		"stopp --dry-run pod/web":                                      "Would stop sandbox pod/web",
	} {
		if r := c.run(strings.Fields(line)...); r.code != 0 || strings.TrimSpace(r.out) != want {
			t.Errorf("%s: %+v, want %s", line, r, want)
		}
	}
	for line, want := range map[string]string{
		"inspect -n prod nginx": "crishim: there is no container \"nginx\"\n",
		"rmp -f web/nginx":      "crishim: there is no pod \"web/nginx\"\nhint: it is a container; `crishim stop web/nginx` and `crishim rm web/nginx` are for those\n",
		"stopp web/nginx":       "crishim: there is no pod \"web/nginx\"\nhint: it is a container; `crishim stop web/nginx` and `crishim rm web/nginx` are for those\n",
		"logs web -c nosuch":    "crishim: there is no container \"nosuch\" in a pod \"web\"\nhint: `crishim ps -a --pod web` lists its containers\n",
		"logs nosuch -c nginx":  "crishim: there is no container \"nginx\" in a pod \"nosuch\"\nhint: `crishim pods` lists pods\n",
		"inspect pod/nginx":     "crishim: there is no container \"nginx\"\n",
	} {
		if r := c.run(strings.Fields(line)...); r.code != 1 || !strings.HasPrefix(r.err, want) {
			t.Errorf("%s: %+v, want %s", line, r, want)
		}
	}
	if n, _ := c.stub.Left(); n != 2 {
		t.Errorf("%d pods are left", n)
	}
}

func TestNamespacesOfStatsAndDescribe(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	for _, namespace := range []string{"default", "prod"} {
		c.stub.AddContainer(c.stub.AddPod(namespace, "web"), "main")
	}
	for line, want := range map[string]string{
		"stats -n prod -o name":               "prod/web/main\n",
		"stats -n prod main -o name":          "prod/web/main\n",
		"stats -n default --pod web -o name":  "default/web/main\n",
		"stats --namespace=nowhere -o name":   "",
		"statsp -n prod -o name":              "prod/web\n",
		"statsp -n prod web -o name":          "prod/web\n",
		"describe -n prod web -o name":        "prod/web\n",
		"describe pod web -n default -o name": "default/web\n",
		"describe prod/web/main -o name":      "prod/web\n",
		"describe web/main -n prod -o name":   "prod/web\n",
		"statsp prod/web/main -o name":        "prod/web\n",
	} {
		c.run(strings.Fields(line)...).want(t, 0, want, "")
	}
	if r := c.run("describe", "-n", "nowhere", "web"); r.code != 1 || !strings.HasPrefix(r.err, "crishim: there is no pod \"web\"") {
		t.Errorf("%+v", r)
	}
}

// TestNamespaceOfVerbsThatChange: -n as kubectl has it, with names and with --all and --selector.
func TestNamespaceOfVerbsThatChange(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	ids := map[string]string{}
	for _, namespace := range []string{"a", "b"} {
		pod := c.stub.AddPod(namespace, "two")
		for _, name := range []string{"x", "y"} {
			ids[namespace+"/two/"+name] = c.stub.AddContainer(pod, name)
		}
	}
	for _, step := range []struct {
		line string
		code int
		out  string
		err  string
	}{
		{"stop -n a nosuch", 1, "", "crishim: there is no container \"nosuch\"\nhint: `crishim ps -a` lists them\n"},
		{"rm -n a two/x", 1, "", "crishim: container a/two/x still runs\nhint: `crishim stop a/two/x` stops it, `crishim rm -f a/two/x` kills and removes it\n"},
		{"stop --dry-run --all -n a", 0, "Would stop a/two/y (" + ids["a/two/y"][:13] + ")\nWould stop a/two/x (" + ids["a/two/x"][:13] + ")\n", ""},
		{"stop x -n a", 0, "x\n", ""},
		{"kill -n a x", 1, "", "crishim: container \"x\" is not running: its state is exited, created 90s ago\nhint: `crishim describe a/two` shows why it ended, `crishim logs a/two/x` shows its output\n"},
		{"pause -n a x", 1, "", "crishim: container \"x\" is not running: its state is exited, created 90s ago\nhint: `crishim describe a/two` shows why it ended, `crishim logs a/two/x` shows its output\n"},
		{"wait -n a x", 0, "137\n", ""},
		{"wait -n b --for=condition=Ready pod/two", 0, "", ""},
		{"wait -n b --for condition=ready=true two", 0, "", ""},
		{"wait -n b --for condition=ready=true pod two", 0, "", ""},
		{"stopp --namespace a two", 0, "Stopped sandbox two\n", ""},
		{"wait -n a --for condition=Ready=false two", 0, "", ""},
		{"rmp -n a two", 0, "Removed sandbox two\n", ""},
		{"wait --for=delete a/two", 0, "", ""},
		{"delete -q -n a two", 1, "", "crishim: there is no pod \"two\"\nhint: `crishim pods` lists them\n"},
		{"delete -q b/two b/two/x", 1, "", "crishim: there is no pod \"b/two/x\"\nhint: it is a container; `crishim stop b/two/x` and `crishim rm b/two/x` are for those\n"},
		{"delete -q -n b two", 0, "pod b/two: deleted\n", ""},
		{"delete -f x.yaml -n b", 2, "", "crishim: give either -f or --namespace, not both: manifests name their namespaces\nusage: crishim delete [options] POD|WORKLOAD...\n"},
	} {
		if r := c.run(strings.Fields(step.line)...); r != (result{step.code, step.out, step.err}) {
			t.Errorf("%s: got %+v", step.line, r)
		}
	}
}

// TestHintsForOtherWords are for what people type who know kubectl and docker. Nothing is done.
func TestHintsForOtherWords(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web")
	c.stub.AddContainer(pod, "app")
	c.stub.AddContainer(pod, "side")
	web := c.file("web.yaml", "")
	for _, step := range []struct {
		line string
		code int
		want string // the hint
	}{
		{"describe nodes", 1, "`crishim info` shows this node's runtime, `crishim doctor` checks it"},
		{"describe node/one", 1, "`crishim info` shows this node's runtime, `crishim doctor` checks it"},
		{"describe container web", 1, "`crishim inspect web` is for containers, `crishim describe web` is for a pod"},
		{"delete -n x container/web", 1, "`crishim rm web` is for containers, `crishim delete x/web` is for a pod"},
		{"describe image busybox", 1, "`crishim inspecti busybox` is for images, `crishim describe busybox` is for a pod"},
		{"delete deployment web", 1, "`crishim pods` lists the pods"},
		{"describe job", 1, "`crishim pods` lists them"},
		{"exec web ls", 1, "add -c side, or give one of these ids, or a longer name such as default/web/side"},
		{"stop web", 1, "give one of these ids, or a longer name such as default/web/side"},
		{"rmi busybox:nosuch", 1, "did you mean busybox:latest? `crishim images` lists them"},
		{"inspecti busybox:nosuch", 1, "did you mean busybox:latest? `crishim images` lists them, `crishim pull busybox:nosuch` gets it"},
		{"image rm busybox", 2, "`crishim rmi busybox` does"},
		{"image prune", 2, "`crishim rmi --prune` does"},
		{"apply " + strings.Replace(web, "web.yaml", "wbe.yaml", 1), 2, "did you mean " + web + "?"},
		{"logs deploy/web", 1, "there are only pods and containers here: `crishim pods --name web` looks for pods of that name"},
		{"port-forward svc/web 80", 1, "there are only pods and containers here: `crishim pods --name web` looks for pods of that name"},
		{"kill -9 web", 2, "`crishim kill -s 9 CONTAINER` sends the signal"},
		{"apply -k base", 2, "`kubectl kustomize DIR | crishim apply -f -` runs what it prints"},
		{"system df", 2, "`crishim df` shows what takes up disk"},
		{"system prune", 2, "`crishim info` shows the runtime, `crishim df` what takes up disk, `crishim rmi --prune` and `crishim gc` remove what is unused"},
		{"rmi -f busybox:nosuch", 1, "did you mean busybox:latest? `crishim images` lists them"},
		{"apply nosuch/directory", 2, "give files, directories of manifests, or - for standard input"},
	} {
		r := c.run(strings.Fields(step.line)...)
		if strings.HasPrefix(step.line, "exec") {
			step.code = cli.ExitOwnFailure
		}
		if r.code != step.code || r.out != "" || !strings.HasSuffix(r.err, "\nhint: "+step.want+"\n") {
			t.Errorf("%s: got %+v", step.line, r)
		}
	}
	c.run("image", "ls").want(t, 0, c.run("images").out, "")
	c.run("image", "ls", "busybox").want(t, 0, c.run("images").out, "")
	c.run("images", "nosuch").want(t, 0, "IMAGE   TAG   IMAGE ID   SIZE\n", "")
	c.vars["NO_COLOR"] = "1"
	var out test.Buffer
	c.onTerminal(t.Context(), 80, &out, "images", "busyboxx").want(t, 0, "IMAGE   TAG   IMAGE ID   SIZE\n", "hint: did you mean busybox? `crishim images` lists them, `crishim pull busyboxx` gets it\n")
	empty := withStub(t, stubcri.Options{})
	empty.vars["NO_COLOR"] = "1"
	var none test.Buffer
	empty.onTerminal(t.Context(), 80, &none, "images").want(t, 0, "IMAGE   TAG   IMAGE ID   SIZE\n", "hint: `crishim pull busybox` gets an image\n")
}

func TestPortsByName(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "web")
	c.stub.AddContainer(pod, "nginx", func(c *runtimeapi.ContainerConfig) {
		c.Annotations = map[string]string{kube.AnnotationPorts: `[{"name":"http","containerPort":8080,"protocol":"TCP"},{"containerPort":1},{"name":"metrics","containerPort":9090}]`}
	})
	bare := c.stub.AddPod("default", "bare")
	c.stub.AddContainer(bare, "x", func(c *runtimeapi.ContainerConfig) {
		c.Annotations = map[string]string{kube.AnnotationPorts: "no JSON"}
	})
	c.stub.Fail("PortForward", errors.New("no streaming here"))
	c.run("port-forward", "pod/web", ":http", "0:metrics", ":81")
	if got := lastRequest[*runtimeapi.PortForwardRequest](t, c.stub).GetPort(); len(got) != 3 || got[0] != 8080 || got[1] != 9090 || got[2] != 81 {
		t.Errorf("ports %v", got)
	}
	c.run("port-forward", "web", "https").want(t, 1, "", "crishim: pod default/web has no port named \"https\"\nhint: its ports are http (8080), metrics (9090)\n")
	c.run("port-forward", "bare", "80:http").want(t, 1, "", "crishim: pod default/bare has no port named \"http\"\nhint: no names of its ports are known: give a number\n")
	if r := c.run("port-forward", "web", "1:2:3:http"); r.code != 2 {
		t.Errorf("%+v", r)
	}
}

// docker's create takes an image.
func TestCreateFromAnImage(t *testing.T) {
	c := &commandTest{t: t, vars: map[string]string{}}
	c.run("create", "web", "busybox").want(t, 2, "", "crishim: busybox: no such file\n"+
		"hint: from an image: `crishim run -d --pod web IMAGE`, or `crishim run -d IMAGE` in a pod of its own\n")
}
