package reliability

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test/stubcri"
)

func dumping(t *testing.T) (program, *stubcri.Server) {
	t.Helper()
	stub := stubcri.Start(t, stubcri.Options{})
	stub.AddContainer(stub.AddPod("default", "web"), "app")
	return program{t: t, env: append(os.Environ(),
		"CONTAINER_RUNTIME_ENDPOINT="+stub.Endpoint, "CRI_CONFIG_FILE="+os.DevNull, "CRISHIM_ROOT="+t.TempDir())}, stub
}

// TestDumpOnAFullDisk checks the error and that no partial archive is left.
func TestDumpOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.fill()
	p, _ := dumping(t)
	r := p.run(t.Context(), "dump", "-o", filepath.Join(d.path, "x"))
	if r.code != 1 || r.out != "" || !strings.Contains(r.err, "no space left on device\n") || !strings.Contains(r.err, "hint: `crishim dump -o -") {
		t.Errorf("got %+v", r)
	}
	if left := names(t, d.path); left != "filler" {
		t.Errorf("left: %s", left)
	}
}

// TestDumpKilled kills the command while the runtime hangs. No file exists at that time.
func TestDumpKilled(t *testing.T) {
	t.Parallel()
	p, stub := dumping(t)
	called := make(chan struct{}, 64)
	stub.Before("ListContainers", func(ctx context.Context) {
		called <- struct{}{}
		<-ctx.Done()
	})
	dir := t.TempDir()
	cmd := p.command(t.Context(), "dump", "-o", filepath.Join(dir, "x"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-called
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if left := names(t, dir); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestDumpOfAHungRuntime checks that the dump ends at the time limit of its parts and includes the host's data.
func TestDumpOfAHungRuntime(t *testing.T) {
	t.Parallel()
	p, stub := dumping(t)
	for _, method := range []string{"ListContainers", "ListPodSandbox", "Status", "ImageStatus", "ListContainerStats", "GetContainerEvents"} {
		stub.Before(method, func(ctx context.Context) { <-ctx.Done() })
	}
	file := filepath.Join(t.TempDir(), "x")
	start := time.Now()
	r := p.run(t.Context(), "--timeout", "1s", "dump", "-o", file)
	if r.code != 0 || r.out != file+"\n" || !strings.Contains(r.err, ": missing or not whole: ") || !strings.Contains(r.err, "containers") {
		t.Errorf("after %s: got %+v", time.Since(start), r)
	}
	if info, err := os.Stat(file); err != nil || info.Size() < 1000 || info.Mode() != 0o600 {
		t.Errorf("the archive: %v, %v", info, err)
	}
	// The lists are present, but no details of listed objects.
	p, stub = dumping(t)
	for _, method := range []string{"ContainerStatus", "PodSandboxStatus"} {
		stub.Before(method, func(ctx context.Context) { <-ctx.Done() })
	}
	if r := p.run(t.Context(), "--timeout", "1s", "dump", "-o", file); r.code != 0 {
		t.Errorf("got %+v", r)
	}
	parts := partsOf(t, file)
	for name, failed := range map[string]bool{"version": false, "images": false, "pods": true, "containers": true} {
		if (parts[name] != "") != failed {
			t.Errorf("%s: got %q, want an error: %v", name, parts[name], failed)
		}
	}
}

// TestDumpWhileTheEngineHangsOnEngine checks that a dump of an engine that stops responding keeps the parts so far, and
// has an error for each of the others.
func TestDumpWhileTheEngineHangsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	p := k.running(t)
	proxy := startProxy(t, h.endpoint())
	lists := make(chan struct{})
	listed := sync.OnceFunc(func() { close(lists) })
	freeze := sync.OnceValue(proxy.Freeze)
	proxy.Set(func(_ int, call string) fault {
		switch {
		case strings.HasPrefix(call, "GET /containers/json"):
			return fault{Body: func(answer io.Reader) io.Reader {
				text, err := io.ReadAll(answer)
				if err == nil && bytes.Contains(text, []byte(`"io.kubernetes.docker.type":"podsandbox"`)) { // not the list of containers
					return io.MultiReader(bytes.NewReader(text), atEnd(listed))
				}
				return bytes.NewReader(text)
			}}
		case strings.HasPrefix(call, "GET /images/sha256") && strings.HasSuffix(call, "/json"):
			return fault{Answer: func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-lists:
				case <-r.Context().Done():
				}
				freeze()
				<-r.Context().Done()
			}}
		}
		return fault{}
	})
	file := filepath.Join(t.TempDir(), "x")
	start := time.Now()
	r := h.crishim(t, embedded(proxy.Host)).run(t.Context(), "--timeout", "2s", "dump", "-o", file)
	if took := time.Since(start); r.code != 0 || r.out != file+"\n" || !strings.Contains(r.err, ": missing or not whole: ") || took > time.Minute {
		t.Fatalf("after %s: got %+v", took, r)
	}
	freeze()()
	parts := partsOf(t, file)
	for name, failed := range map[string]bool{"version": false, "host": false, "containers": true} {
		if got, there := parts[name]; !there || (got != "") != failed {
			t.Errorf("%s: got %q (%v), want an error: %v", name, got, there, failed)
		}
	}
	for name, text := range parts {
		if strings.Contains(text, "rpc error") || strings.Contains(text, "panic") || strings.Contains(text, "fault of crishim") {
			t.Errorf("%s: %s", name, text)
		}
	}
	k.gone(t, p)
	k.serve.stop()
}

// atEnd is a reader that calls the function at EOF, when all data has been forwarded.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func partsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "tar", "-xzOf", file, "--wildcards", "*/bundle.json").Output()
	var all struct {
		Parts []struct{ Part, Error string }
	}
	if err = errors.Join(err, json.Unmarshal(text, &all)); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for _, p := range all.Parts {
		parts[p.Part] = p.Error
	}
	return parts
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}
