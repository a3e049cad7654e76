package verbs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// onTerminal runs a command line as on a terminal of a width, without colours.
func (c *commandTest) onTerminal(ctx context.Context, width int, out *test.Buffer, args ...string) result {
	c.t.Helper()
	var errs test.Buffer
	vars := map[string]string{"CRI_CONFIG_FILE": c.file("none.yaml", ""), "CONTAINER_RUNTIME_ENDPOINT": c.stub.Endpoint, "CRISHIM_ROOT": c.vars["CRISHIM_ROOT"], "NO_COLOR": c.vars["NO_COLOR"]}
	env := &cli.Process{
		In: strings.NewReader(""), Out: out, Err: &errs, OutTerminal: true, Width: func() int { return width },
		LookupEnv: func(key string) (string, bool) { value, ok := vars[key]; return value, ok },
		Now:       func() time.Time { return testNow.Add(90 * time.Second) }, Version: "v0.0.0-test",
		ConnectTimeout: time.Minute,
	}
	code := commands.Main(ctx, append([]string{"crishim"}, args...), env)
	return result{code, out.String(), errs.String()}
}

// seedTrouble gives the stub a node as people look at one: what runs, what was killed for
// memory, what could not be started, a job that has ended, a stopped pod, long names.
func seedTrouble(s *stubcri.Server) {
	in := func(pod, namespace string, attempt uint32) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Metadata.Attempt = attempt
			c.Labels = map[string]string{kube.LabelPodName: pod, kube.LabelPodNamespace: namespace}
			c.Annotations = map[string]string{kube.AnnotationPorts: `[{"hostPort":8080,"containerPort":80,"protocol":"TCP"}]`}
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/var/lib/data", ContainerPath: "/data", Readonly: true}}
		}
	}
	dns := s.AddPod("kube-system", "coredns-5d78c9869d-x7k2p")
	s.AddContainer(dns, "coredns", in("coredns-5d78c9869d-x7k2p", "kube-system", 0))
	shop := s.AddPod("shop", "checkout-7f9c6b5d4-abcde")
	s.AddContainer(shop, "proxy", in("checkout-7f9c6b5d4-abcde", "shop", 0))
	s.ExitFor(s.AddContainer(shop, "checkout", in("checkout-7f9c6b5d4-abcde", "shop", 12)), 137, "OOMKilled")
	job := s.AddPod("batch", "nightly")
	s.Exit(s.AddContainer(job, "report", in("nightly", "batch", 0)), 0)
	broken := s.AddPod("default", "broken")
	s.ExitFor(s.AddContainer(broken, "main", in("broken", "default", 3)), 128, "StartError")
	old := s.AddPod("default", "old")
	s.Exit(s.AddContainer(old, "main", in("old", "default", 0)), 137)
	s.StopPod(old)
	s.AddPod("default", "empty")
}

// TestScreens keeps what people see on terminals of several widths, where no line may be
// wider than they are.
func TestScreens(t *testing.T) {
	for _, width := range []int{50, 70, 80, 200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			c := withStub(t, stubcri.Options{})
			c.vars["NO_COLOR"] = "1"
			seedTrouble(c.stub)
			var all strings.Builder
			for _, line := range []string{"ps", "ps -a", "ps -a -o wide", "pods", "pods -o wide", "images", "stats -a", "statsp", "ps -a --columns name,state,exit,reason,finished,mounts"} {
				var out test.Buffer
				r := c.onTerminal(t.Context(), width, &out, strings.Fields(line)...)
				fmt.Fprintf(&all, "$ crishim %s\n%s%s\n", line, r.out, r.err)
				for shown := range strings.Lines(r.out) {
					if w := runewidth.StringWidth(strings.TrimSuffix(shown, "\n")); w > width {
						t.Errorf("%s: %d columns on %d: %s", line, w, width, shown)
					}
				}
			}
			test.Golden(t, fmt.Sprintf("screen-%d", width), all.String())
		})
	}
}

// TestColours: they are on a terminal only, unless the user says otherwise.
func TestColours(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedTrouble(c.stub)
	const red = "\x1b[31mExited (137, OOMKilled)"
	for _, tt := range []struct {
		args, noColor string
		terminal      bool
		want          bool
	}{
		{"ps -a", "", true, true},
		{"ps -a", "1", true, false},
		{"ps -a --color=never", "", true, false},
		{"--color always ps -a", "1", true, true},
		{"ps -a --color always", "", false, true},
		{"ps -a", "", false, false},
		{"--compat=crictl ps -a", "", true, false},
	} {
		c.vars["NO_COLOR"] = tt.noColor
		var r result
		if tt.terminal {
			var out test.Buffer
			r = c.onTerminal(t.Context(), 200, &out, strings.Fields(tt.args)...)
		} else {
			r = c.run(strings.Fields(tt.args)...)
		}
		if got := strings.Contains(r.out, red) && strings.Contains(r.out, "\x1b[1mCONTAINER"); r.code != 0 || got != tt.want || !got && strings.Contains(r.out, "\x1b") {
			t.Errorf("%+v: %+v", tt, r)
		}
	}
	if r := c.run("ps", "--color", "pink"); r.code != 2 {
		t.Errorf("got %+v", r)
	}
}

// TestWatch prints the list, and what changes: by the runtime's events, and without them.
func TestWatch(t *testing.T) {
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprint(events), func(t *testing.T) {
			t.Parallel()
			o := stubcri.Options{}
			if !events {
				o.Unimplemented = []string{"GetContainerEvents"}
			}
			c := withStub(t, o)
			c.vars["NO_COLOR"] = "1"
			pod := c.stub.AddPod("default", "web")
			first := c.stub.AddContainer(pod, "first")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var out, podsOut test.Buffer
			ended := make(chan result, 2)
			go func() { ended <- c.onTerminal(ctx, 80, &out, "ps", "-a", "--watch") }()
			go func() { ended <- c.onTerminal(ctx, 80, &podsOut, "pods", "-w", "--columns", "name,ready,state") }()
			until := func(out *test.Buffer, text string) {
				t.Helper()
				for end := time.Now().Add(time.Minute); !strings.Contains(out.String(), text); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("no %q in %q", text, out.String())
					}
				}
			}
			until(&out, "Running")
			until(&podsOut, "1/1     Running")
			c.stub.ExitFor(first, 137, "OOMKilled")
			until(&out, "Exited (137, OOMKilled)")
			until(&podsOut, "0/1     OOMKilled")
			c.stub.AddContainer(pod, "second")
			until(&out, "second")
			c.run("rm", first).want(t, 0, first+"\n", "")
			until(&out, "Deleted")
			if n := strings.Count(out.String(), "\n"); n != 5 {
				t.Errorf("got %d lines, want a header and 4 rows:\n%s", n, out.String())
			}
			cancel()
			for range 2 {
				if r := <-ended; r.code != 0 || r.err != "" {
					t.Errorf("got %+v", r)
				}
			}
		})
	}
}

// TestListsPointToDescribe: once, where a person sees that something has failed.
func TestListsPointToDescribe(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	c.vars["NO_COLOR"] = "1"
	seedTrouble(c.stub)
	for line, want := range map[string]string{
		"ps -a":                                "hint: `crishim describe shop/checkout-7f9c6b5d4-abcde` shows more\n",
		"ps -a --pod checkout-7f9c6b5d4-abcde": "hint: `crishim describe shop/checkout-7f9c6b5d4-abcde` shows more\n",
		"pods":                                 "hint: `crishim describe broken` shows more\n",
		"pods -o wide":                         "hint: `crishim describe broken` shows more\n",
		"pods --name nightly":                  "",
		"ps":                                   "",
		"ps --filter name=nothing":             "hint: --all has containers that have ended, too; `crishim pods --name nothing` looks for pods\n",
		"ps -q --name nothing":                 "",
		"ps -aq":                               "",
		"ps -a -o json":                        "",
		"pods -o name":                         "",
		"--compat=crictl ps -a":                "",
	} {
		var out test.Buffer
		if r := c.onTerminal(t.Context(), 200, &out, strings.Fields(line)...); r.code != 0 || r.err != want {
			t.Errorf("%s: got %+v, want %q", line, r, want)
		}
		if r := c.run(strings.Fields(line)...); r.code != 0 || r.err != "" {
			t.Errorf("%s, piped: got %+v", line, r)
		}
	}
}
