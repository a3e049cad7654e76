package commands

import (
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// debug --host makes a privileged pod in the host's namespaces, runs the command in the host's mounts
// and leaves nothing behind.
func TestDebugHost(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	r := c.run("debug", "--host", "--image", "busybox", "echo", "a  b")
	// Whether the command may enter this machine's own namespaces is not what is tested.
	if !strings.Contains(r.err, "crishim: on the host as root: a privileged container of busybox with the host's processes, network and files, removed afterwards\n") {
		t.Fatalf("got %+v", r)
	}
	var made []string
	for _, call := range c.stub.Calls() {
		switch r := call.Request.(type) {
		case *runtimeapi.RunPodSandboxRequest:
			sc := r.GetConfig().GetLinux().GetSecurityContext()
			made = append(made, "pod", ns(sc.GetPrivileged(), sc.GetNamespaceOptions()))
		case *runtimeapi.CreateContainerRequest:
			sc := r.GetConfig().GetLinux().GetSecurityContext()
			made = append(made, "container", ns(sc.GetPrivileged(), sc.GetNamespaceOptions()))
		case *runtimeapi.ExecRequest:
			if n := len(r.GetCmd()); n != 6 || r.GetCmd()[4] != "echo" || r.GetCmd()[5] != "a  b" || !strings.Contains(r.GetCmd()[2], "nsenter -t 1") {
				t.Errorf("got command %q", r.GetCmd())
			}
			made = append(made, "exec")
		case *runtimeapi.RemoveContainerRequest:
			made = append(made, "removed container")
		case *runtimeapi.RemovePodSandboxRequest:
			made = append(made, "removed pod")
		}
	}
	const host = "privileged NODE NODE NODE"
	if want := []string{"pod", host, "container", host, "exec", "removed container", "removed pod"}; !slices.Equal(made, want) {
		t.Errorf("got %q, want %q", made, want)
	}
	for line, want := range map[string]string{
		"--host --copy-to x web":          "--host and --copy-to: choose one",
		"--host --profile net ps":         "--host has all capabilities",
		"--copy-to x --image busybox web": "a copy has what its container has",
	} {
		if r := c.run(append([]string{"debug"}, strings.Fields(line)...)...); r.code != 125 || !strings.Contains(r.err, want) {
			t.Errorf("%s: got %+v", line, r)
		}
	}
}

func ns(privileged bool, o *runtimeapi.NamespaceOption) string {
	text := strings.Join([]string{o.GetNetwork().String(), o.GetPid().String(), o.GetIpc().String()}, " ")
	if privileged {
		text = "privileged " + text
	}
	return text
}

// A copy with the name of another container of its pod would pass for an attempt of that one.
func TestDebugCopyNeedsANameOfItsOwn(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	pod := c.stub.AddPod("default", "shop")
	c.stub.AddContainer(pod, "till", func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = 1 })
	c.stub.Exit(c.stub.AddContainer(pod, "db"), 1)
	c.stub.AddContainer(c.stub.AddPod("default", "other"), "free")
	for name, refused := range map[string]bool{"till": true, "db": true, "free": false} {
		got := c.run("debug", "--copy-to", name, "shop/till", "true")
		if said := strings.Contains(got.err, `the pod has a container "`+name+`" already`); said != refused || refused && got.code != 125 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if slices.Contains(c.stub.Methods(), "CreateContainer") {
		t.Error("a container was created")
	}
}
