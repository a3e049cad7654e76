package pause

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

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
	for arch, content := range map[string][]byte{"amd64": programAMD64, "arm64": programARM64} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pause")
			// A child of another test would inherit the file while it is open for writing: "text file busy".
			syscall.ForkLock.RLock()
			err := os.WriteFile(path, content, 0o700)
			syscall.ForkLock.RUnlock()
			if err != nil {
				t.Fatal(err)
			}
			command := []string{path}
			if emulator := test.Emulator(t, arch); emulator != "" {
				command = []string{emulator, path}
			}
			for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
				cmd := exec.Command(command[0], command[1:]...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				waitUntilItWaits(t, cmd.Process.Pid)
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					t.Errorf("%s: got %v, want status 0", signal, err)
				}
			}
		})
	}
}

// waitUntilItWaits waits until the process waits for the signals that it has blocked. An emulator
// makes the same system call of this machine.
func waitUntilItWaits(t *testing.T, pid int) {
	t.Helper()
	call := strconv.Itoa(unix.SYS_RT_SIGTIMEDWAIT) + " "
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "syscall"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(b), call) {
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
