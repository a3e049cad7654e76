package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// zoo is a runtime with all kinds of similar names. Each reading of its clock advances it by a minute.
type zoo struct {
	*client.Conn
	s   *stubcri.Server
	ids map[string]string // test name to container or pod id
}

func newZoo(t *testing.T) *zoo {
	t.Helper()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := stubcri.Start(t, stubcri.Options{Now: func() time.Time { now = now.Add(time.Minute); return now }})
	z := &zoo{s: s, ids: map[string]string{}}
	attempt := func(n uint32) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = n }
	}
	uid := func(uid string, n uint32) func(*runtimeapi.PodSandboxConfig) {
		return func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Uid, c.Metadata.Attempt = uid, n }
	}
	// web: three attempts of nginx, of which the last runs, and a log container.
	z.ids["web"] = s.AddPod("default", "web")
	for n := range uint32(3) {
		z.ids[fmt.Sprint("web/nginx", n)] = s.AddContainer(z.ids["web"], "nginx", attempt(n))
		if n < 2 {
			s.Exit(z.ids[fmt.Sprint("web/nginx", n)], 1)
		}
	}
	z.ids["web/log"] = s.AddContainer(z.ids["web"], "log")
	// db: one running and one exited container.
	z.ids["db"] = s.AddPod("prod", "db")
	z.ids["db/init"] = s.AddContainer(z.ids["db"], "init")
	s.Exit(z.ids["db/init"], 0)
	z.ids["db/postgres"] = s.AddContainer(z.ids["db"], "postgres")
	// prod/web: same pod name in another namespace; its nginx is created but not started.
	z.ids["prod/web"] = s.AddPod("prod", "web")
	z.ids["prod/web/nginx"] = s.AddCreated(z.ids["prod/web"], "nginx")
	// job: stopped, with all its containers.
	z.ids["job"] = s.AddPod("prod", "job")
	z.ids["job/work"] = s.AddContainer(z.ids["job"], "work")
	s.StopPod(z.ids["job"])
	// set-0: recreated by its owner; the old sandbox is stopped.
	z.ids["set old"] = s.AddPod("prod", "set-0", uid("old", 0))
	z.ids["set old/app"] = s.AddContainer(z.ids["set old"], "app")
	s.StopPod(z.ids["set old"])
	z.ids["set new"] = s.AddPod("prod", "set-0", uid("new", 0))
	z.ids["set new/app"] = s.AddContainer(z.ids["set new"], "app")
	// twin: two running pods with the same name.
	z.ids["twin a"] = s.AddPod("prod", "twin", uid("a", 0))
	z.ids["twin b"] = s.AddPod("prod", "twin", uid("b", 0))
	z.ids["twin a/x"] = s.AddContainer(z.ids["twin a"], "twin-x")
	z.ids["twin b/x"] = s.AddContainer(z.ids["twin b"], "twin-x")
	// box: two sandboxes of one pod, and a container with the name of a pod.
	z.ids["box 0"] = s.AddPod("prod", "box", uid("box", 0))
	z.ids["box/db 0"] = s.AddContainer(z.ids["box 0"], "db")
	s.StopPod(z.ids["box 0"])
	z.ids["box 1"] = s.AddPod("prod", "box", uid("box", 1))
	z.ids["box/db"] = s.AddContainer(z.ids["box 1"], "db", attempt(1))
	z.Conn = connect(t, client.Options{RuntimeEndpoint: s.Endpoint, Now: func() time.Time { return now }})
	return z
}

// Attempts of a container come from all sandboxes of its pod, but not from other pods of the same name.
func TestAttempts(t *testing.T) {
	z := newZoo(t)
	for _, c := range []struct{ pod, name, want string }{
		{"web", "nginx", "web/nginx0 web/nginx1 web/nginx2"},
		{"prod/web", "nginx", "prod/web/nginx"},
		{"box 1", "db", "box/db box/db 0"},
		{"box 0", "db", "box/db box/db 0"},
		{"set new", "app", "set new/app"},
		{"web", "none", ""},
	} {
		pod, err := z.Pod(t.Context(), z.ids[c.pod], client.NewestAttempt)
		if err != nil {
			t.Fatal(err)
		}
		found, err := z.AttemptsOf(t.Context(), pod, c.name)
		var names []string
		for _, ctr := range found {
			names = append(names, z.name(ctr.GetId()))
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%s in %s: %q, %v, want %q", c.name, c.pod, got, err, c.want)
		}
	}
}

func n(v uint32) *uint32 { return &v }

func TestContainerNames(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	tests := []struct {
		name string
		q    client.Query
		want string // keys of zoo.ids
		code codes.Code
		text string
	}{
		{"full id", client.Query{Ref: z.ids["web/nginx1"]}, "web/nginx1", 0, ""},
		{"full id, though it does not run", client.Query{Ref: z.ids["web/nginx1"], Want: client.PreferRunning}, "web/nginx1", 0, ""},
		{"id prefix", client.Query{Ref: z.ids["db/postgres"][:13]}, "db/postgres", 0, ""},
		{"unique name", client.Query{Ref: "postgres"}, "db/postgres", 0, ""},
		{"name in two pods", client.Query{Ref: "nginx"}, "", codes.FailedPrecondition, `"nginx" is ambiguous`},
		{"name in two pods, one runs", client.Query{Ref: "nginx", Want: client.RunningAttempt}, "web/nginx2", 0, ""},
		{"pod and container", client.Query{Ref: "db/init"}, "db/init", 0, ""},
		{"pod of two namespaces", client.Query{Ref: "web/nginx", Want: client.PreferRunning}, "web/nginx2", 0, ""},
		{"with namespace", client.Query{Ref: "default/web/nginx"}, "web/nginx2", 0, ""},
		{"with namespace, created", client.Query{Ref: "prod/web/nginx"}, "prod/web/nginx", 0, ""},
		{"created, but wanted running", client.Query{Ref: "prod/web/nginx", Want: client.RunningAttempt}, "", codes.FailedPrecondition, "is not running: its state is created"},
		{"earlier attempt", client.Query{Ref: "default/web/nginx", Attempt: n(1)}, "web/nginx1", 0, ""},
		{"attempt that is not there", client.Query{Ref: "default/web/nginx", Attempt: n(7)}, "", codes.NotFound, "has no attempt 7"},
		{"earlier attempt, wanted running", client.Query{Ref: "default/web/nginx", Attempt: n(1), Want: client.RunningAttempt}, "", codes.FailedPrecondition, "its state is exited"},
		{"a container's name before a pod's", client.Query{Ref: "db"}, "box/db", 0, ""},
		{"a pod's name for its only running container", client.Query{Ref: "prod/db"}, "db/postgres", 0, ""},
		{"a dead pod's only container", client.Query{Ref: "job"}, "job/work", 0, ""},
		{"a pod with two running", client.Query{Ref: "default/web"}, "", codes.FailedPrecondition, "is ambiguous: 2 containers match"},
		{"a pod made anew", client.Query{Ref: "set-0/app"}, "set new/app", 0, ""},
		{"twins", client.Query{Ref: "twin/twin-x"}, "", codes.FailedPrecondition, "is ambiguous: 2 containers match"},
		{"the last one", client.Query{Ref: "@last"}, "box/db", 0, ""},
		{"nothing", client.Query{Ref: "nosuch"}, "", codes.NotFound, `there is no container "nosuch"`},
		{"wrong pod", client.Query{Ref: "db/nginx"}, "", codes.NotFound, `there is no container "db/nginx"`},
		{"wrong namespace", client.Query{Ref: "default/db/postgres"}, "", codes.NotFound, "there is no container"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := z.FindContainer(t.Context(), tt.q)
			z.check(t, c.GetId(), err, tt.want, tt.code, tt.text)
		})
	}
}

func TestPodNames(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	tests := []struct {
		name string
		q    client.Query
		want string
		code codes.Code
		text string
	}{
		{"full id", client.Query{Ref: z.ids["box 0"]}, "box 0", 0, ""},
		{"id prefix", client.Query{Ref: z.ids["db"][:10]}, "db", 0, ""},
		{"name", client.Query{Ref: "db"}, "db", 0, ""},
		{"name in two namespaces", client.Query{Ref: "web"}, "", codes.FailedPrecondition, `"web" is ambiguous: 2 pods match`},
		{"with namespace", client.Query{Ref: "prod/web"}, "prod/web", 0, ""},
		{"sandboxes of one pod", client.Query{Ref: "box"}, "box 1", 0, ""},
		{"recreated", client.Query{Ref: "set-0", Want: client.RunningAttempt}, "set new", 0, ""},
		{"twins", client.Query{Ref: "prod/twin"}, "", codes.FailedPrecondition, "is ambiguous: 2 pods match"},
		{"dead", client.Query{Ref: "job"}, "job", 0, ""},
		{"dead, but wanted ready", client.Query{Ref: "job", Want: client.RunningAttempt}, "", codes.FailedPrecondition, "is not ready"},
		{"the last one", client.Query{Ref: client.LastRef}, "box 1", 0, ""},
		{"nothing", client.Query{Ref: "nosuch"}, "", codes.NotFound, `there is no pod "nosuch"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := z.Pod(t.Context(), tt.q.Ref, tt.q.Want)
			z.check(t, p.GetId(), err, tt.want, tt.code, tt.text)
		})
	}
}

func (z *zoo) check(t *testing.T, id string, err error, want string, code codes.Code, text string) {
	t.Helper()
	if want != "" {
		if err != nil || id != z.ids[want] {
			t.Errorf("got %s (%s), %v; want %s", z.name(id), id, err, want)
		}
		return
	}
	if status.Code(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %s, %v (%s); want %q (%s)", z.name(id), err, status.Code(err), text, code)
	}
}

func (z *zoo) name(id string) string {
	for name, i := range z.ids {
		if i == id {
			return name
		}
	}
	return "nothing"
}

func TestAmbiguityListsCandidates(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	_, err := z.Container(t.Context(), "default/web", client.NewestAttempt)
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 {
		t.Fatalf("got %q", err)
	}
	for i, want := range []string{"web/log", "web/nginx2"} {
		name := "default/" + strings.TrimSuffix(want, "2")
		f := strings.Fields(lines[i+1])
		if len(f) != 4 || !strings.HasPrefix(z.ids[want], f[0]) || f[1] != name || f[2] != "running" || !strings.HasSuffix(f[3], "m") {
			t.Errorf("got line %q, want %s", lines[i+1], name)
		}
	}
	if h := hintOf(err); !strings.Contains(h, "default/web/log") {
		t.Errorf("got hint %q", h)
	}
}

func TestNamesWithoutMetadata(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	pod := s.AddPod("default", "web")
	a := s.AddContainer(pod, "x", func(c *runtimeapi.ContainerConfig) { c.Labels = map[string]string{"io.kubernetes.pod.name": "lies"} })
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	if got, err := c.Container(t.Context(), "web/x", client.NewestAttempt); err != nil || got.GetId() != a {
		t.Errorf("the sandbox's metadata goes before labels: got %v, %v", got, err)
	}
}

func TestMalformedReferences(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	for _, ref := range []string{"", "a//b", "/a", "a/", "a/b/c/d", "a\x1bb"} {
		_, err := c.Container(t.Context(), ref, client.NewestAttempt)
		var syntax *client.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: got %v, want a SyntaxError", ref, err)
		}
	}
	if _, err := c.Pod(t.Context(), "a/b/c", client.NewestAttempt); err == nil {
		t.Error("a pod with three parts was looked up")
	}
	if got := s.Methods(); len(got) != 1 {
		t.Errorf("the runtime was asked: %v", got)
	}
}

func TestMisspeltNames(t *testing.T) {
	z := newZoo(t)
	z.s.AddPod("prod", "empty")
	container := func(ref string) error { _, err := z.Container(t.Context(), ref, client.NewestAttempt); return err }
	pod := func(ref string) error { _, err := z.Pod(t.Context(), ref, client.NewestAttempt); return err }
	for _, tt := range []struct {
		find      func(string) error
		ref, want string
	}{
		{container, "ngnix", "did you mean nginx? `crishim ps -a` lists them"},
		{container, "wbe/log", "did you mean web/log? `crishim ps -a` lists them"},
		{container, "prod/db/postgress", "did you mean prod/db/postgres? `crishim ps -a` lists them"},
		{container, "jobb", "did you mean job? `crishim ps -a` lists them"},
		{container, "something-else", "`crishim ps -a` lists them"},
		{container, "empty", "empty is a pod, and has none: `crishim describe empty` shows why"},
		{container, "prod/empty", "prod/empty is a pod, and has none: `crishim describe prod/empty` shows why"},
		{container, z.ids["job"], z.ids["job"] + " is a pod; `crishim ps -a --pod " + z.ids["job"] + "` lists its containers"},
		{pod, "wbe", "did you mean web? `crishim pods` lists them"},
		{pod, "default/we", "did you mean default/web? `crishim pods` lists them"},
		{pod, "nginx", "`crishim pods` lists them"},
	} {
		var known *client.Error
		if err := tt.find(tt.ref); !errors.As(err, &known) || known.Hint() != tt.want {
			t.Errorf("%s: got %v with hint %q, want %q", tt.ref, err, known.Hint(), tt.want)
		}
	}
}
