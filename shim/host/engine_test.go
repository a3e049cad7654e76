package host

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
)

// TestMain makes the library accept cgroups that are ordinary files.
func TestMain(m *testing.M) {
	cgroups.TestMode = true
	m.Run()
}

// procTree creates a /proc with processes "PID NAME PPID".
func procTree(t *testing.T, lines ...string) string {
	t.Helper()
	proc := t.TempDir()
	for _, line := range lines {
		pid, rest, _ := strings.Cut(line, " ")
		at := strings.LastIndexByte(rest, ' ')
		dir := filepath.Join(proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%s (%s) S %s 1 1%s\n", pid, rest[:at], rest[at+1:], strings.Repeat(" 0", 46))
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

func TestEngineProcesses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		processes []string
		want      []int
	}{
		"with its containerd":         {[]string{"1 systemd 0", "7 dockerd 1", "8 containerd 7", "9 containerd-shim 8", "10 containerd 1"}, []int{7, 8}},
		"a containerd of its own":     {[]string{"7 dockerd 1", "10 containerd 1"}, []int{7}},
		"a child with an odd name":    {[]string{"7 dockerd 1", "8 a) S 7 (containerd 7"}, []int{7}},
		"systemd listens":             {[]string{"7 systemd 0", "20 dockerd 7", "21 containerd 20"}, []int{20, 21}},
		"systemd listens for many":    {[]string{"7 systemd 0", "20 dockerd 7", "21 dockerd 7"}, nil},
		"something else listens":      {[]string{"7 socat 1"}, nil},
		"the listener cannot be seen": {[]string{"1 init 0"}, nil},
	} {
		got, err := engineProcesses(procTree(t, c.processes...), 7)
		if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v, got + instead of -:\n%s", name, err, diff)
		}
	}
}

func TestKeepEngine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		has, want []string
	}{
		"version 1": {[]string{"memory/x", "cpu/x", "pids/x"}, []string{"memory", "cpu"}},
		"version 2": {[]string{"cgroup.controllers"}, []string{""}},
	} {
		root, proc := t.TempDir(), procTree(t, "7 dockerd 1", "1 init 0")
		for _, file := range c.has {
			if err := os.MkdirAll(filepath.Join(root, file), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := keepEngine(proc, root, 7, "/runtime.slice/docker"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, controller := range c.want {
			b, err := os.ReadFile(filepath.Join(root, controller, "runtime.slice/docker/cgroup.procs"))
			if err != nil || string(b) != "7" {
				t.Errorf("%s %s: got %q, %v", name, controller, b, err)
			}
		}
		b, err := os.ReadFile(filepath.Join(proc, "7/oom_score_adj"))
		if err != nil || string(b) != strconv.Itoa(engineScore) {
			t.Errorf("%s: oom score: got %q, %v", name, b, err)
		}
		if _, err := os.Stat(filepath.Join(root, "pids/runtime.slice")); err == nil {
			t.Errorf("%s: a controller that nobody reads was touched", name)
		}
		if _, err := os.Stat(filepath.Join(proc, "1/oom_score_adj")); err == nil {
			t.Errorf("%s: a process that is not the engine's was touched", name)
		}
	}
}

func TestEngineThatIsNotThere(t *testing.T) {
	t.Parallel()
	if EngineLacksResource("/no/such/socket") {
		t.Error("an engine that is not there was judged")
	}
	if got := EngineCapabilities("/no/such/socket"); got != nil {
		t.Errorf("an engine that is not there can give %v", got)
	}
}

// TestBoundingSet reads the set of the listening process, which is the test itself.
func TestBoundingSet(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("CapBnd:\t%016x\n", boundingSet(socket)); !strings.Contains(string(status), got) {
		t.Errorf("got %q, want what is in\n%s", got, status)
	}
}

func TestGivenCapabilities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set  uint64
		last string
		want string
	}{
		"all":             {0x000001ffffffffff, "40\n", ""},
		"all but one":     {0x000000000000001d, "4\n", "CHOWN DAC_READ_SEARCH FOWNER FSETID"},
		"an older kernel": {0x0000003fffffffff, "37\n", ""},
		"a newer kernel":  {0x000003ffffffffff, "41\n", ""},
		"not a kernel":    {0x000000000000001d, "many", ""},
		"no set":          {0, "40\n", ""},
	} {
		if got := strings.Join(given(tc.set, tc.last), " "); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
