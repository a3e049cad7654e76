package reliability

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// dumping is a program on a runtime in memory.
func dumping(t *testing.T) (program, *stubcri.Server) {
	t.Helper()
	stub := stubcri.Start(t, stubcri.Options{})
	stub.AddContainer(stub.AddPod("default", "web"), "app")
	return program{t: t, env: append(os.Environ(),
		"CONTAINER_RUNTIME_ENDPOINT="+stub.Endpoint, "CRI_CONFIG_FILE="+os.DevNull, "CRISHIM_ROOT="+t.TempDir())}, stub
}

// TestDumpOnAFullDisk: it says so, and leaves nothing of the archive.
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

// TestDumpKilled while the runtime hangs: no file was made so far.
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

// TestDumpOfAHungRuntime ends when the parts' time is over, with all that the host tells.
func TestDumpOfAHungRuntime(t *testing.T) {
	t.Parallel()
	p, stub := dumping(t)
	for _, method := range []string{"ListContainers", "ListPodSandbox", "Status", "ImageStatus", "ListContainerStats", "GetContainerEvents"} {
		stub.Before(method, func(ctx context.Context) { <-ctx.Done() })
	}
	file := filepath.Join(t.TempDir(), "x")
	start := time.Now()
	r := p.run(t.Context(), "--timeout", "1s", "dump", "-o", file)
	if r.code != 0 || r.out != file+"\n" || !strings.Contains(r.err, "parts are missing or not whole") || !strings.Contains(r.err, "containers") {
		t.Errorf("after %s: got %+v", time.Since(start), r)
	}
	if info, err := os.Stat(file); err != nil || info.Size() < 1000 || info.Mode() != 0o600 {
		t.Errorf("the archive: %v, %v", info, err)
	}
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
