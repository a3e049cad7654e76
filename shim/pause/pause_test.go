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
	"github.com/docker/docker/api/types/image"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
)

func TestProgramsAreStaticAndSmall(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64} {
		b := programAMD64
		if arch == "aarch64" {
			b = programARM64
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
	if _, err := build("s390x"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("another architecture: got %v", err)
	}
}

func TestThePauseProcessEndsOnSignals(t *testing.T) {
	t.Parallel()
	for arch, content := range map[string][]byte{"amd64": programAMD64, "arm64": programARM64} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pause")
			// A concurrent fork of another test would inherit the open file and cause "text file busy".
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

// waitUntilItWaits waits until the process is in sigtimedwait. An emulator uses the system call of this machine.
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
	var archives [2][]byte
	for i := range archives {
		b, err := build("amd64")
		if err == nil {
			archives[i], err = b.archive()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("got two different archives")
	}
}

// TestContentDecides checks that only an image with all files and the configuration is accepted as the built-in one.
func TestContentDecides(t *testing.T) {
	t.Parallel()
	own, err := build("x86_64")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*image.InspectResponse){
		"nothing":         func(*image.InspectResponse) {},
		"empty forms":     func(i *image.InspectResponse) { i.Config.Env, i.Config.Labels = []string{}, map[string]string{} },
		"another layer":   func(i *image.InspectResponse) { i.RootFS.Layers = []string{"sha256:" + strings.Repeat("0", 64)} },
		"one layer more":  func(i *image.InspectResponse) { i.RootFS.Layers = append(i.RootFS.Layers, i.RootFS.Layers[0]) },
		"no layer":        func(i *image.InspectResponse) { i.RootFS.Layers = nil },
		"another program": func(i *image.InspectResponse) { i.Config.Entrypoint = []string{"/other"} },
		"an argument":     func(i *image.InspectResponse) { i.Config.Cmd = []string{"x"} },
		"a variable":      func(i *image.InspectResponse) { i.Config.Env = []string{"A=B"} },
		"a volume":        func(i *image.InspectResponse) { i.Config.Volumes = map[string]struct{}{"/v": {}} },
		"a label":         func(i *image.InspectResponse) { i.Config.Labels = map[string]string{"a": "b"} },
		"a health check": func(i *image.InspectResponse) {
			i.Config.Healthcheck = &dockerspec.HealthcheckConfig{Test: []string{"CMD", "x"}}
		},
		"no configuration":  func(i *image.InspectResponse) { i.Config = nil },
		"another processor": func(i *image.InspectResponse) { i.Architecture = "arm64" },
	} {
		img := image.InspectResponse{
			Os: "linux", Architecture: "amd64", Config: &dockerspec.DockerOCIImageConfig{ImageConfig: own.Config},
			RootFS: image.RootFS{Type: "layers", Layers: []string{own.RootFS.DiffIDs[0].String()}},
		}
		change(&img)
		if got, want := own.is(img), name == "nothing" || name == "empty forms"; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
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
