package verbs

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	urfave "github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// Flags that several verbs of crictl share.
const (
	crictlTLS    = " tls-ca tls-cert tls-key tls-sni/tls-server-name transport/r"
	crictlPull   = " creds auth username/u pull-timeout/pt"
	crictlMaking = crictlPull + " no-pull with-pull cancel-timeout/T"
	crictlShow   = " output/o template"
)

// crictlVerbs are crictl's verbs with their aliases, and the flags of each.
var crictlVerbs = map[string]string{
	"attach":                "tty/t stdin/i" + crictlTLS,
	"checkpoint":            "export/e",
	"completion":            "",
	"config":                "get set list",
	"create":                crictlMaking,
	"create jsonschema/js":  "pod-config/p container-config/c",
	"events/event":          crictlShow,
	"exec":                  "sync/s timeout tty/t interactive/i name pod/p image state label latest/l last/n quiet/q ignore-errors/e parallel/x" + crictlTLS,
	"imagefsinfo":           crictlShow,
	"images/image/img":      "verbose/v quiet/q filter/f output/o digests no-trunc pinned",
	"info":                  "quiet/q" + crictlShow,
	"inspect":               "quiet/q name namespace pod/p image state/s label latest/l last/n all/a" + crictlShow,
	"inspecti":              "quiet/q name filter/f" + crictlShow,
	"inspectp":              "quiet/q name namespace state/s label latest/l last/n" + crictlShow,
	"logs":                  "follow/f previous/p reopen/r tail limit-bytes since timestamps/t stream/s",
	"metricdescs":           "output/o",
	"metricsp":              "output/o watch/w",
	"pods":                  "id name namespace state/s label verbose/v quiet/q output/o latest/l last/n no-trunc",
	"port-forward":          crictlTLS,
	"ps":                    "verbose/v id name namespace pod/p image state/s label quiet/q output/o all/a latest/l last/n no-trunc resolve-image-path/r",
	"pull":                  "pod-config annotation/a" + crictlPull,
	"pull jsonschema/js":    "",
	"rm":                    "force/f keep-logs/k all/a",
	"rmi":                   "all/a prune/q",
	"rmp":                   "force/f all/a",
	"run":                   "runtime creds auth username pull-timeout/pt no-pull with-pull cancel-timeout/T", // -u: TestUserOfRun
	"run jsonschema/js":     "pod-config/p container-config/c",
	"runp":                  "runtime/r cancel-timeout/T",
	"runp jsonschema/js":    "",
	"runtime-config":        "",
	"start":                 "",
	"stats":                 "all/a id pod/p label output/o seconds/s watch/w",
	"statsp":                "id label output/o seconds/s watch/w",
	"stop":                  "timeout/t all/a",
	"stopp":                 "",
	"update":                "cpu-count cpu-maximum cpu-period cpu-quota cpu-share memory cpuset-cpus cpuset-mems oom-score-adj",
	"update-runtime-config": "pod-cidr/p",
	"version":               "",
}

const crictlGlobals = "config/c runtime-endpoint/r image-endpoint/i timeout/t debug/D max-retries profile-cpu profile-mem " +
	"enable-tracing tracing-endpoint tracing-sampling-rate-per-million help/h version/v"

// Every verb and flag of crictl exists under its names, long and short.
func TestEveryVerbAndFlagOfCrictl(t *testing.T) {
	app := cli.NewApp(testProcess(), true, commands.Groups()).WithAllVerbs()
	hasFlags(t, "crishim", app.Flags, crictlGlobals)
	for names, flags := range crictlVerbs {
		command := &urfave.Command{Subcommands: app.Commands}
		for word := range strings.FieldsSeq(names) {
			parent := command
			all := strings.Split(word, "/")
			if command = parent.Command(all[0]); command == nil {
				t.Fatalf("there is no %s", names)
			}
			for _, alias := range all {
				if parent.Command(alias) != command {
					t.Errorf("%s is not called %s", names, alias)
				}
			}
		}
		hasFlags(t, names, command.Flags, flags+" help/h")
	}
}

// hasFlags looks for long/short among flags; those of one word are one flag.
func hasFlags(t *testing.T, verb string, flags []urfave.Flag, want string) {
	t.Helper()
	for word := range strings.FieldsSeq(want) {
		names := strings.Split(word, "/")
		i := slices.IndexFunc(flags, func(f urfave.Flag) bool { return slices.Contains(f.Names(), names[0]) })
		if i < 0 {
			t.Errorf("%s has no --%s", verb, names[0])
			continue
		}
		for _, name := range names {
			if !slices.Contains(flags[i].Names(), name) {
				t.Errorf("%s --%s is not called -%s", verb, names[0], name)
			}
		}
	}
}

// surfaceNode has a container that runs, and files of crictl's two kinds.
func surfaceNode(t *testing.T) (c *commandTest, vars *strings.Replacer) {
	t.Helper()
	c = withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = t.TempDir() })
	run := c.stub.AddContainer(pod, "run", func(o *runtimeapi.ContainerConfig) { o.LogPath = "run.log" })
	c.stub.Log(run, "stdout", "hello")
	return c, strings.NewReplacer(
		"$POD.json", c.file("pod.json", `{"metadata": {"name": "made", "namespace": "default", "uid": "u"}, "log_directory": "/l"}`),
		"$CTR.json", c.file("container.json", `{"metadata": {"name": "c"}, "image": {"image": "busybox"}, "log_path": "c.log"}`),
		"$POD", pod, "$RUN", run)
}

func surfacePod() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "made", Namespace: "default", Uid: "u"}, LogDirectory: "/l"}
}

// Requests have the values of crictl's flags and environment.
func TestFlagsOfCrictlReachTheRuntime(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "x.tar") // the stub writes it
	busybox := &runtimeapi.ImageSpec{Image: "busybox", UserSpecifiedImage: "busybox"}
	me := &runtimeapi.AuthConfig{Username: "me", Password: "secret"}
	all := &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{}}
	inState := func(state runtimeapi.ContainerState) *runtimeapi.ListContainersRequest {
		return &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: state}}}
	}
	for _, test := range []struct {
		line, env string
		want      func(pod, run string) proto.Message
	}{
		{"pull --creds me:secret busybox", "", func(string, string) proto.Message {
			return &runtimeapi.PullImageRequest{Image: busybox, Auth: me}
		}},
		{"pull --auth bWU6c2VjcmV0 busybox", "", func(string, string) proto.Message {
			return &runtimeapi.PullImageRequest{Image: busybox, Auth: me}
		}},
		{"pull busybox", "CRICTL_CREDS=me:secret", func(string, string) proto.Message {
			return &runtimeapi.PullImageRequest{Image: busybox, Auth: me}
		}},
		{"pull busybox", "CRICTL_AUTH=bWU6c2VjcmV0", func(string, string) proto.Message {
			return &runtimeapi.PullImageRequest{Image: busybox, Auth: me}
		}},
		{"pull -a k=v --annotation l=w --pod-config $POD.json busybox", "", func(string, string) proto.Message {
			return &runtimeapi.PullImageRequest{
				Image:         &runtimeapi.ImageSpec{Image: "busybox", UserSpecifiedImage: "busybox", Annotations: map[string]string{"k": "v", "l": "w"}},
				SandboxConfig: surfacePod(),
			}
		}},
		{"create --with-pull --creds me:secret $POD $CTR.json $POD.json", "", func(string, string) proto.Message {
			return &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "busybox"}, Auth: me, SandboxConfig: surfacePod()}
		}},
		{"runp -r kata $POD.json", "", func(string, string) proto.Message {
			return &runtimeapi.RunPodSandboxRequest{Config: surfacePod(), RuntimeHandler: "kata"}
		}},
		{"run --runtime kata $CTR.json $POD.json", "", func(string, string) proto.Message {
			return &runtimeapi.RunPodSandboxRequest{Config: surfacePod(), RuntimeHandler: "kata"}
		}},
		{"update --cpu-period 1 --cpu-quota 2 --cpu-share 3 --memory 4 --cpuset-cpus 5 --cpuset-mems 6 --oom-score-adj 7 $RUN", "", func(_, run string) proto.Message {
			return &runtimeapi.UpdateContainerResourcesRequest{ContainerId: run, Linux: &runtimeapi.LinuxContainerResources{
				CpuPeriod: 1, CpuQuota: 2, CpuShares: 3, MemoryLimitInBytes: 4, CpusetCpus: "5", CpusetMems: "6", OomScoreAdj: 7,
			}}
		}},
		{"update-runtime-config -p 10.1.0.0/16", "", func(string, string) proto.Message {
			return &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.1.0.0/16"}}}
		}},
		{"checkpoint -e " + archive + " $RUN", "", func(_, run string) proto.Message {
			return &runtimeapi.CheckpointContainerRequest{ContainerId: run, Location: archive}
		}},
		{"stop -t 7 $RUN", "", func(_, run string) proto.Message {
			return &runtimeapi.StopContainerRequest{ContainerId: run, Timeout: 7}
		}},
		{"exec -s --timeout 7 $RUN true", "", func(_, run string) proto.Message {
			return &runtimeapi.ExecSyncRequest{ContainerId: run, Cmd: []string{"true"}, Timeout: 7}
		}},
		{"logs -r $RUN", "", func(_, run string) proto.Message {
			return &runtimeapi.ReopenContainerLogRequest{ContainerId: run}
		}},
		{"ps", "", func(string, string) proto.Message { return inState(runtimeapi.ContainerState_CONTAINER_RUNNING) }},
		{"ps -a", "", func(string, string) proto.Message { return all }},
		{"ps -l", "", func(string, string) proto.Message { return all }},
		{"ps -s exited", "", func(string, string) proto.Message { return inState(runtimeapi.ContainerState_CONTAINER_EXITED) }},
		{"ps -a -s exited", "", func(string, string) proto.Message { return inState(runtimeapi.ContainerState_CONTAINER_EXITED) }},
		{"ps -s exited -l", "", func(string, string) proto.Message { return all }},
		{"inspect -a -s exited", "", func(string, string) proto.Message { return inState(runtimeapi.ContainerState_CONTAINER_EXITED) }},
		{"ps -a -p $POD --label a=b --label c=d", "", func(pod, _ string) proto.Message {
			return &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: pod, LabelSelector: map[string]string{"a": "b", "c": "d"}}}
		}},
		{"pods -s notready --label a=b", "", func(string, string) proto.Message {
			return &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
				State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}, LabelSelector: map[string]string{"a": "b"},
			}}
		}},
		{"stats -o json --id abc --label a=b", "", func(string, string) proto.Message {
			return &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: "abc", LabelSelector: map[string]string{"a": "b"}}}
		}},
		{"statsp -o json --id abc --label a=b", "", func(string, string) proto.Message {
			return &runtimeapi.ListPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{Id: "abc", LabelSelector: map[string]string{"a": "b"}}}
		}},
		{"inspect $RUN", "", func(_, run string) proto.Message {
			return &runtimeapi.ContainerStatusRequest{ContainerId: run, Verbose: true}
		}},
		{"inspect -q $RUN", "", func(_, run string) proto.Message { return &runtimeapi.ContainerStatusRequest{ContainerId: run} }},
		{"inspectp -q $POD", "", func(pod, _ string) proto.Message { return &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod} }},
		{"info -q", "", func(string, string) proto.Message { return &runtimeapi.StatusRequest{} }},
	} {
		t.Run(strings.TrimSpace(test.env+" "+test.line), func(t *testing.T) {
			t.Parallel()
			c, vars := surfaceNode(t)
			if key, value, ok := strings.Cut(test.env, "="); ok {
				c.vars[key] = value
			}
			if r := c.runAs(t.Context(), "crictl", strings.Fields(vars.Replace(test.line))...); r.code != 0 {
				t.Errorf("got %+v", r)
			}
			want := test.want(vars.Replace("$POD"), vars.Replace("$RUN"))
			if diff := cmp.Diff(want, lastLike(t, c.stub, want), protocmp.Transform()); diff != "" {
				t.Errorf("the request (-want +got):\n%s", diff)
			}
		})
	}
}

// -u is the user of the registry in crictl's form of run.
func TestUserOfRun(t *testing.T) {
	c, vars := surfaceNode(t)
	c.stdin = "secret\n"
	if r := c.run(strings.Fields(vars.Replace("run --with-pull -u me --password-stdin $CTR.json $POD.json"))...); r.code != 0 {
		t.Errorf("got %+v", r)
	}
	if got := lastRequest[*runtimeapi.PullImageRequest](t, c.stub).GetAuth(); got.GetUsername() != "me" || got.GetPassword() != "secret" {
		t.Errorf("got user %q", got.GetUsername())
	}
}

// lastLike is the newest request of the same type as this one.
func lastLike(t *testing.T, s *stubcri.Server, like proto.Message) any {
	t.Helper()
	calls := s.Calls()
	slices.Reverse(calls)
	for _, call := range calls {
		if reflect.TypeOf(call.Request) == reflect.TypeOf(like) {
			return call.Request
		}
	}
	t.Fatalf("no %T among %v", like, s.Methods())
	return nil
}

// Each limit of time that crictl has ends a call that hangs, and is named.
func TestLimitsOfCrictlHold(t *testing.T) {
	for _, test := range []struct{ method, line, env, want string }{
		{"RunPodSandbox", "runp -T 200ms $POD.json", "", "--cancel-timeout"},
		{"RunPodSandbox", "run --no-pull --cancel-timeout 200ms $CTR.json $POD.json", "", "--cancel-timeout"},
		{"CreateContainer", "create -T 200ms $POD $CTR.json $POD.json", "", "--cancel-timeout"},
		{"PullImage", "pull --pt 200ms busybox", "", "--pull-timeout"},
		{"PullImage", "pull busybox", "CRICTL_PULL_TIMEOUT=200ms", "--pull-timeout"},
		{"PullImage", "run --pull-timeout 200ms $CTR.json $POD.json", "", "--pull-timeout"},
		{"ListContainers", "-t 200ms ps", "", "--timeout"},
		{"ListContainers", "ps", "CRI_CONFIG_FILE=timeout: 1", "--timeout"},
	} {
		t.Run(strings.TrimSpace(test.env+" "+test.line), func(t *testing.T) {
			t.Parallel()
			c, vars := surfaceNode(t)
			if key, value, ok := strings.Cut(test.env, "="); ok {
				if key == "CRI_CONFIG_FILE" {
					value = c.file("crictl.yaml", value)
				}
				c.vars[key] = value
			}
			c.stub.Before(test.method, func(ctx context.Context) { <-ctx.Done() })
			r := c.runAs(t.Context(), "crictl", strings.Fields(vars.Replace(test.line))...)
			if r.code != 1 || r.out != "" || !strings.Contains(r.err, "no answer") || !strings.Contains(r.err, test.want+" waits longer") {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// Whether create and run pull is the config file's to say, and the flags go
// before it.
func TestConfigFileDecidesAboutPulling(t *testing.T) {
	for _, test := range []struct {
		line, config string
		pulls        bool
	}{
		{"create $POD $CTR.json $POD.json", "", false},
		{"create $POD $CTR.json $POD.json", "pull-image-on-create: true", true},
		{"create --no-pull $POD $CTR.json $POD.json", "pull-image-on-create: true", false},
		{"create --with-pull $POD $CTR.json $POD.json", "pull-image-on-create: false", true},
		{"run $CTR.json $POD.json", "", true},
		{"run $CTR.json $POD.json", "disable-pull-on-run: true", false},
		{"run --with-pull $CTR.json $POD.json", "disable-pull-on-run: true", true},
		{"run --no-pull $CTR.json $POD.json", "disable-pull-on-run: false", false},
	} {
		t.Run(test.config+" "+test.line, func(t *testing.T) {
			t.Parallel()
			c, vars := surfaceNode(t)
			c.vars["CRI_CONFIG_FILE"] = c.file("crictl.yaml", test.config)
			if r := c.runAs(t.Context(), "crictl", strings.Fields(vars.Replace(test.line))...); r.code != 0 {
				t.Errorf("got %+v", r)
			}
			if got := slices.Contains(c.stub.Methods(), "PullImage"); got != test.pulls {
				t.Errorf("pulls: %v, want %v", got, test.pulls)
			}
		})
	}
}

// The image service may be another one, by flag, environment or config file.
func TestImageServiceOfItsOwn(t *testing.T) {
	images := stubcri.Start(t, stubcri.Options{})
	images.AddImage("docker.io/library/elsewhere:latest")
	for name, set := range map[string]func(c *commandTest) []string{
		"flag":        func(*commandTest) []string { return []string{"-i", images.Endpoint} },
		"environment": func(c *commandTest) []string { c.vars["IMAGE_SERVICE_ENDPOINT"] = images.Endpoint; return nil },
		"config file": func(c *commandTest) []string {
			c.vars["CRI_CONFIG_FILE"] = c.file("crictl.yaml", "image-endpoint: "+images.Endpoint)
			return nil
		},
	} {
		c, _ := surfaceNode(t)
		args := set(c)
		if r := c.run(append(args, "images", "-o", "name")...); r.code != 0 || r.out != "docker.io/library/elsewhere:latest\n" {
			t.Errorf("%s: %+v", name, r)
		}
		if r := c.run(append(args, "ps", "-o", "name")...); r.code != 0 || r.out != "default/web/run\n" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// An endpoint is dialled by the commands that need it, so that the other one may be broken.
func TestEachEndpointIsDialledWhereItIsNeeded(t *testing.T) {
	missing := "unix:///nonexistent/other.sock"
	for line, code := range map[string]int{
		"images -o name": 0, "inspecti busybox": 0, "imagefsinfo": 0, "pull busybox": 0, "rmi --dry-run busybox": 0,
		"-r BAD -i GOOD ps": 1, "-i BAD -r GOOD images": 1, "-i BAD -r GOOD ps --image busybox": 1,
		"-i BAD -r GOOD pods": 0, "-i BAD -r GOOD ps": 0, "-i BAD -r GOOD inspect $RUN": 0, "-i BAD -r GOOD exec $RUN true": 0,
		"-r BAD -i GOOD rmi --prune": 1, // it asks which images are in use
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			c, vars := surfaceNode(t)
			if !strings.Contains(line, "BAD") {
				line = "-r BAD -i GOOD " + line
			}
			words := strings.Fields(strings.NewReplacer("BAD", missing, "GOOD", c.stub.Endpoint).Replace(vars.Replace(line)))
			if r := c.run(words...); (r.code == 0) != (code == 0) || code != 0 && !strings.Contains(r.err, missing) {
				t.Errorf("got %+v", r)
			}
			config := strings.NewReplacer("-r ", "runtime-endpoint: ", "-i ", "image-endpoint: ").Replace(strings.Join(words[:2], " ") + "\n" + strings.Join(words[2:4], " "))
			c.vars["CRI_CONFIG_FILE"], c.vars["CONTAINER_RUNTIME_ENDPOINT"] = c.file("crictl.yaml", config), ""
			if r := c.run(words[4:]...); (r.code == 0) != (code == 0) {
				t.Errorf("by the config file: got %+v", r)
			}
		})
	}
}
