package verbs

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// remoteEndpoint returns a tcp:// endpoint of the stub, which is a runtime on another machine.
func remoteEndpoint(t *testing.T, s *stubcri.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", strings.TrimPrefix(s.Endpoint, "unix://"))
			if err != nil {
				from.Close()
				continue
			}
			go func() { io.Copy(to, from); to.Close() }()
			go func() { io.Copy(from, to); from.Close() }()
		}
	}()
	return "tcp://" + listener.Addr().String()
}

// Paths and uids that a remote runtime reports name nothing on this machine.
func TestRemoteRuntimeTouchesNoLocalFile(t *testing.T) {
	for name, remote := range map[string]bool{"local": false, "remote": true} {
		t.Run(name, func(t *testing.T) {
			const uid = "6f1e3f3c-9a44-4b4e-8a0c-27b5f2e0f7a1"
			c := withStub(t, stubcri.Options{})
			if remote {
				c.vars["CONTAINER_RUNTIME_ENDPOINT"] = remoteEndpoint(t, c.stub)
			}
			logs := t.TempDir()
			ownLogs := filepath.Join(cli.OwnLogs, "default_web_"+uid)
			pod := c.stub.AddPod("default", "web", func(p *runtimeapi.PodSandboxConfig) { p.Metadata.Uid, p.LogDirectory = uid, logs })
			labels := map[string]string{kube.LabelPodUID: uid, kube.LabelPodName: "web", kube.LabelPodNamespace: "default"}
			id := c.stub.AddContainer(pod, "web", func(o *runtimeapi.ContainerConfig) { o.LogPath, o.Labels = "web.log", labels })
			local := func(path, text string) string {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			log := local(filepath.Join(logs, "web.log"), "2026-01-02T03:04:05Z stdout F local\n")
			rotated := local(filepath.Join(logs, "web.log.1"), "")
			own := local(filepath.Join(ownLogs, "web.log"), "")
			kept := filepath.Join(c.vars["CRISHIM_ROOT"], "pods", uid)
			local(filepath.Join(kept, "state-1.json"), `{"sandbox":"`+pod+`","reason":"DeadlineExceeded"}`)
			events := filepath.Join(c.vars["CRISHIM_ROOT"], "stops.jsonl")
			exists := func(path string) bool {
				_, err := os.Stat(path)
				return err == nil
			}

			if r := c.run("logs", id); strings.Contains(r.out, "local") == remote {
				t.Errorf("logs: %+v", r)
			}
			bundle := unpacked(t, []byte(c.run("dump", "--logs", "all", "-o", "-").out))
			read := false
			for file, text := range bundle {
				read = read || strings.HasPrefix(file, "logs/") && strings.Contains(text, "local")
			}
			if read == remote || bundle["bundle.json"] == "" {
				t.Errorf("dump: the local log is in it: %v", read)
			}
			if r := c.run("stop", id); r.code != 0 || exists(events) == remote {
				t.Errorf("stop: %+v, events are recorded: %v", r, exists(events))
			}
			if r := c.run("pods"); strings.Contains(r.out, "DeadlineExceeded") == remote {
				t.Errorf("pods: %+v", r)
			}
			if r := c.run("--compat=crictl", "rm", id); r.code != 0 || exists(log) != remote || exists(rotated) != remote {
				t.Errorf("rm: %+v, log files exist: %v, %v", r, exists(log), exists(rotated))
			}
			made := c.run("create", pod, c.file("container.json", `{"metadata":{"name":"other"},"image":{"image":"busybox"}}`), "--pull")
			if r := c.run("rmp", "-f", pod); r.code != 0 || exists(own) != remote {
				t.Errorf("rmp: %+v, the log directory exists: %v", r, exists(own))
			}
			runp := c.run("runp", c.file("pod.json", `{"metadata":{"name":"new"}}`))
			for _, call := range c.stub.Calls() {
				switch request := call.Request.(type) {
				case *runtimeapi.CreateContainerRequest:
					if dir := request.GetSandboxConfig().GetLogDirectory(); (dir == ownLogs) == remote {
						t.Errorf("create: %+v, log directory %q", made, dir)
					}
				case *runtimeapi.RunPodSandboxRequest:
					if dir := request.GetConfig().GetLogDirectory(); os.Geteuid() == 0 && (dir == "") != remote {
						t.Errorf("runp: %+v, log directory %q", runp, dir)
					}
				}
			}
		})
	}
}
