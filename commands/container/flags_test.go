package container

import (
	"flag"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/argv"
)

// FuzzContainerFlags: any value of a flag of run, cp and wait is wrong usage, or makes a valid request.
func FuzzContainerFlags(f *testing.F) {
	for _, text := range []string{
		"80:80", "127.0.0.1:8080:80/udp", "[::1]:1:65535/sctp", "::1:80:80", ":80", "0:1", "80:80/tcp/udp", "1.2.3.4:80",
		"/a:/b:ro", "a:/b", ".:/b:rslave,z", "/a:b", "::", "/a:/b:", "A=b", "=b", "A", "A==",
		"web:/etc/passwd", "./web:/x", ":x", "ns/web/app:x:y", "running", "log=(", "log=x", "image=", "image=a",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := parsePort(text); err == nil {
			_, ipErr := netip.ParseAddr(p.GetHostIp())
			if !inRange(p.GetHostPort()) || !inRange(p.GetContainerPort()) || p.GetHostIp() != "" && ipErr != nil || runtimeapi.Protocol_name[int32(p.GetProtocol())] == "" {
				t.Errorf("--publish %q is %v", text, p)
			}
		}
		if m, err := parseVolume(text); err == nil {
			if !filepath.IsAbs(m.GetHostPath()) || !filepath.IsAbs(m.GetContainerPath()) {
				t.Errorf("--volume %q is %v", text, m)
			}
		}
		var envs []*runtimeapi.KeyValue
		set := flag.NewFlagSet("run", flag.ContinueOnError)
		if err := envFlag(func(string) (string, bool) { return "", false }, &envs, "").Apply(set); err != nil {
			t.Fatal(err)
		}
		if err := set.Set("env", text); err == nil && len(envs) > 0 {
			if e := envs[0]; e.GetKey() == "" || strings.Contains(e.GetKey(), "=") || e.GetKey()+"="+string(e.GetValue()) != text {
				t.Errorf("--env %q is %v", text, e)
			}
		}
		if container, path, remote := splitPath(text); remote && (container == "" || container+":"+path != text) || !remote && path != text {
			t.Errorf("cp %q is %q, %q, %t", text, container, path, remote)
		}
		if g, err := parseGoal(text); err == nil && g.String() == "" {
			t.Errorf("--for %q waits for nothing", text)
		}
	})
}

// TestFlagsOfRun: the list that distinguishes the two forms of run has all flags that need IMAGE [COMMAND]. --user is
// a flag of crictl, too.
func TestFlagsOfRun(t *testing.T) {
	p := &cli.Process{LookupEnv: func(string) (string, bool) { return "", false }}
	oneLine := map[string]bool{}
	for _, flag := range newRunOptions().oneLineFlags(p.LookupEnv) {
		oneLine[flag.Names()[0]] = flag.Names()[0] != "user"
	}
	for _, flag := range NewRun(cli.NewInvocation(p, false)).Flags {
		name := flag.Names()[0]
		if got := (argv.Line{Given: map[string]bool{name: true}, Rest: []string{"./container.json", "./pod.json"}}).IsCrictlRun(); got == oneLine[name] {
			t.Errorf("run --%s CONTAINER-CONFIG POD-CONFIG: from two files is %t", name, got)
		}
	}
}

func inRange(port int32) bool { return port > 0 && port < 1<<16 }
