package stats

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unlimited is what counts as no limit: cgroup v1 writes the largest multiple
// of the page size, v2 the word "max".
const unlimited = 1 << 62

// number reads a file with one number; ok is false where there is none. "max"
// is a number too large to be one.
func number(dir, name string) (n uint64, ok bool) {
	var b [24]byte // the largest number has 20 digits
	text, ok := short(filepath.Join(dir, name), b[:])
	if !ok {
		return 0, false
	}
	if text == "max" {
		return unlimited, true
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// short reads a control file with one short line, which the kernel gives in one
// piece. A list of hundreds of containers reads a dozen of these for each, and
// os.ReadFile makes twice the system calls.
func short(path string, buffer []byte) (text string, ok bool) {
	fd, err := ignoreInterrupts(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return "", false
	}
	n, err := ignoreInterrupts(func() (int, error) { return unix.Read(fd, buffer) })
	if cerr := unix.Close(fd); err != nil || cerr != nil {
		return "", false
	}
	return strings.TrimSpace(string(buffer[:n])), true
}

func ignoreInterrupts(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// table reads a file with lines of a name and a number.
func table(dir, name string) map[string]uint64 {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			out[key] = n
		}
	}
	return out
}

// pids reads the processes of a cgroup.
func pids(dir string) []int {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var out []int
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
