package pause

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crishim/crishim/internal/test"
)

func TestProgramsAreStaticAndSmall(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64} {
		b, _, err := program(arch)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine != machine || len(b) > 4096 {
			t.Errorf("%s: got %s with %d bytes", arch, f.Machine, len(b))
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static", arch)
			}
		}
	}
	if _, _, err := program("s390x"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("another architecture: got %v", err)
	}
}

func TestThePauseProcessEndsOnSignals(t *testing.T) {
	t.Parallel()
	b, _, err := program(runtime.GOARCH)
	if err != nil {
		test.Missing(t, "%v", err)
	}
	path := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(path, b, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.Command(path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntilAsleep(t, cmd.Process.Pid)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: got %v, want status 0", signal, err)
		}
	}
}

// waitUntilAsleep waits until the process sleeps, which it only does while it
// waits for the signals that it has blocked.
func waitUntilAsleep(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "State:\tS") {
			return
		}
	}
	t.Fatal("the process never waited for signals")
}

func TestArchiveIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	a, err := archive(programAMD64, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	b, err := archive(programAMD64, "amd64")
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("got two different archives, %v", err)
	}
}

func TestDrainFindsTheFailure(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		``:                             "",
		`{"status":"x"}{"status":"y"}`: "",
		`{"errorDetail":{"message":"both"},"error":"both"}`: "both",
		`{"errorDetail":{"message":"new"}}`:                 "new",
		`{"status":`:                                        "unexpected EOF",
	} {
		err := drain(io.NopCloser(strings.NewReader(answer)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", answer, err, want)
		}
	}
}
