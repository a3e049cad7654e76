package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// Exec requests have the values of the flags. The stub has no streaming
// server, so its answer ends the command.
func TestExecRequests(t *testing.T) {
	t.Parallel()
	sh := []string{"sh", "-c", "command -v bash >/dev/null && exec bash; command -v ash >/dev/null && exec ash; exec sh"}
	cases := map[string]struct {
		args []string
		want *runtimeapi.ExecRequest
	}{
		"plain":                     {[]string{"web", "ls", "-l"}, &runtimeapi.ExecRequest{Cmd: []string{"ls", "-l"}, Stdout: true, Stderr: true}},
		"a flag of the command":     {[]string{"web", "ls", "--tty", "-i"}, &runtimeapi.ExecRequest{Cmd: []string{"ls", "--tty", "-i"}, Stdout: true, Stderr: true}},
		"two dashes":                {[]string{"web", "--", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"input":                     {[]string{"-i", "web", "cat"}, &runtimeapi.ExecRequest{Cmd: []string{"cat"}, Stdin: true, Stdout: true, Stderr: true}},
		"terminal":                  {[]string{"-t", "web", "top"}, &runtimeapi.ExecRequest{Cmd: []string{"top"}, Tty: true, Stdout: true}},
		"terminal on what is none":  {[]string{"-it", "web", "sh"}, &runtimeapi.ExecRequest{Cmd: []string{"sh"}, Stdin: true, Stdout: true, Stderr: true}},
		"a shell":                   {[]string{"-i", "web"}, &runtimeapi.ExecRequest{Cmd: sh, Stdin: true, Stdout: true, Stderr: true}},
		"flags before two dashes":   {[]string{"web", "-i", "--", "cat", "--", "-x"}, &runtimeapi.ExecRequest{Cmd: []string{"cat", "--", "-x"}, Stdin: true, Stdout: true, Stderr: true}},
		"the container of a pod":    {[]string{"pod", "-c", "web", "--", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"kubectl's form":            {[]string{"-n", "default", "pod/pod", "-c", "web", "--", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"a kind":                    {[]string{"pods/pod", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"a kind and a container":    {[]string{"pod/pod/web", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"a namespace":               {[]string{"-n", "default", "web", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"the last and a command":    {[]string{"--last", "1", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"a container of those":      {[]string{"--pod", "pod", "-c", "web", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
		"a container by its filter": {[]string{"--name", "^web$", "ls"}, &runtimeapi.ExecRequest{Cmd: []string{"ls"}, Stdout: true, Stderr: true}},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			c, id := withRunning(t, "web")
			if r := c.run(append([]string{"exec"}, tt.args...)...); r.code != cli.ExitOwnFailure {
				t.Errorf("got %+v, want status %d", r, cli.ExitOwnFailure)
			}
			tt.want.ContainerId = id
			if diff := cmp.Diff(tt.want, lastRequest[*runtimeapi.ExecRequest](t, c.stub), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// withRunning is a stub with one running container.
func withRunning(t *testing.T, name string) (*commandTest, string) {
	t.Helper()
	c := withStub(t, stubcri.Options{})
	c.stub.AddImage("busybox")
	pod := c.stub.AddPod("default", "pod")
	id := c.stub.AddContainer(pod, name)
	for _, rpc := range []string{"Exec", "Attach", "PortForward"} {
		c.stub.Fail(rpc, errors.New("no streaming here"))
	}
	return c, id
}

// Other runtimes refuse to send what does not fit into a message.
func TestExecSyncOfTooMuch(t *testing.T) {
	c := withStub(t, stubcri.Options{MaxSend: 10 << 10})
	c.stub.AddImage("busybox")
	c.stub.AddContainer(c.stub.AddPod("default", "pod"), "web")
	r := c.run("exec", "--sync", "web", "head", "-c", "20000", "/dev/zero")
	if r.code != cli.ExitOwnFailure || r.out != "" || !strings.HasSuffix(r.err, "\nhint: the output is too much for --sync; without it all arrives\n") {
		t.Errorf("got %+v", r)
	}
}

func TestSessionUsage(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		code int
	}{
		"exec of nothing":            {[]string{"exec"}, cli.ExitOwnFailure},
		"sync with input":            {[]string{"exec", "--sync", "-i", "web", "cat"}, cli.ExitOwnFailure},
		"sync without a command":     {[]string{"exec", "--sync", "web"}, cli.ExitOwnFailure},
		"parallel with a terminal":   {[]string{"exec", "--parallel", "-t", "--name", "web", "sh"}, cli.ExitOwnFailure},
		"negative timeout":           {[]string{"exec", "--timeout", "-1s", "web", "ls"}, cli.ExitOwnFailure},
		"no such detach key":         {[]string{"exec", "--detach-keys", "ctrl-1", "web", "ls"}, cli.ExitOwnFailure},
		"half a client certificate":  {[]string{"exec", "--tls-cert", "c.pem", "web", "ls"}, cli.ExitOwnFailure},
		"attach to nothing":          {[]string{"attach"}, cli.ExitUsage},
		"attach to two":              {[]string{"attach", "a", "b"}, cli.ExitUsage},
		"forward without a port":     {[]string{"port-forward", "web"}, cli.ExitUsage},
		"forward what is no port":    {[]string{"port-forward", "web", "80:a:b"}, cli.ExitUsage},
		"copy between here and here": {[]string{"cp", "a", "b"}, cli.ExitUsage},
		"copy nowhere":               {[]string{"cp", "web:", "b"}, cli.ExitUsage},
		"wait for nothing":           {[]string{"wait"}, cli.ExitUsage},
		"wait for tea":               {[]string{"wait", "--for", "tea", "web"}, cli.ExitUsage},
		"two statuses":               {[]string{"wait", "--exit-code", "a", "b"}, cli.ExitUsage},
		"a status of what runs":      {[]string{"wait", "--for", "running", "--exit-code", "a"}, cli.ExitUsage},
		"debug nothing":              {[]string{"debug"}, cli.ExitOwnFailure},
		"debug with a crown":         {[]string{"debug", "--profile", "royal", "web"}, cli.ExitOwnFailure},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			c := withStub(t, stubcri.Options{})
			if r := c.run(tt.args...); r.code != tt.code || r.out != "" || r.err == "" {
				t.Errorf("got %+v, want status %d", r, tt.code)
			}
			if calls := c.stub.Methods(); len(calls) > 0 {
				t.Errorf("it asked the runtime first: %v", calls)
			}
		})
	}
}

func TestWaitForStates(t *testing.T) {
	t.Parallel()
	c, _ := withRunning(t, "web")
	c.run("wait", "--for", "running", "web").want(t, 0, "", "")
	c.run("wait", "--for", "ready", "pod").want(t, 0, "", "")
	c.run("wait", "--for", "removed", "nobody").want(t, 0, "", "")
	c.run("wait", "--for", "image=busybox").want(t, 0, "", "")
	c.run("wait", "--timeout", "1", "web").want(t, 1, "", "crishim: web is running, not exited, after 1s\n")
	if r := c.run("wait", "nobody"); r.code != 1 {
		t.Errorf("got %+v for a container that is not there", r)
	}
	if r := c.run("stop", "web"); r.code != 0 {
		t.Fatalf("stop: %+v", r)
	}
	if r := c.run("wait", "web"); r.code != 0 || r.out == "" {
		t.Errorf("got %+v for a container that has ended", r)
	}
}

// TestExecSaysOnceWhyACommandCannotBeStarted: CRI-O passes on what its OCI runtime logs
// as the command's output.
func TestExecSaysOnceWhyACommandCannotBeStarted(t *testing.T) {
	t.Parallel()
	const logged = `time="2026-01-02T03:04:05Z" level=error msg="exec failed: unable to start container process: exec: \"/etc\": is a directory"` + "\n"
	for _, profile := range []string{"CRI-O", "containerd 2"} {
		c := withStub(t, stubcri.Profiles()[profile])
		seedNode(c.stub)
		for _, flag := range []string{"-i=false", "-t", "--sync"} {
			c.run("exec", flag, "nginx", "nosuch").want(t, cli.ExitNotFound, "", "crishim: exec: \"nosuch\": executable file not found in $PATH\n")
			c.run("exec", flag, "nginx", "/etc").want(t, cli.ExitCannotRun, "", "crishim: exec: \"/etc\": permission denied\n")
			c.run("exec", flag, "nginx", "printf", "%s", logged).want(t, 0, logged, "")
		}
		c.run("exec", "--sync", "--timeout", "1s", "nginx", "sleep", "20").want(t, cli.ExitOwnFailure, "", "crishim: the command did not end within 1s\n")
	}
}
