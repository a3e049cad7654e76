package reliability

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func contextWithoutEnd(t testing.TB) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// fewest is the number of descriptors that Go needs to start.
const fewest = 10

// TestCommandWithoutDescriptorsOnEngine lowers the descriptor limit step by step. The command must succeed or report
// what it could not open.
func TestCommandWithoutDescriptorsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	p := k.running(t)
	worked := 0
	for name, endpoint := range map[string]string{"serve": k.serve.endpoint(), "one command": embedded(h.endpoint())} {
		crishim := h.crishim(t, endpoint)
		for want, args := range map[string][]string{
			p.containerID: {"ps", "-a", "-q", "--no-trunc"}, "done": {"exec", p.containerID, "echo", "done"}, "busybox": {"images"},
		} {
			for _, n := range []int{fewest, 13, 16, 24} {
				r := crishim.wait(crishim.shell(t.Context(), fmt.Sprintf(`ulimit -n %d && exec crishim "$@"`, n), args...))
				if r.code == 0 {
					if worked++; !strings.Contains(r.out, want) {
						t.Errorf("%v on %s with %d descriptors: %+v", args, name, n, r)
					}
					continue
				}
				if strings.Contains(r.err, "goroutine ") || !strings.Contains(r.err, "crishim: ") {
					t.Errorf("%v on %s with %d descriptors: %+v", args, name, n, r)
				}
			}
		}
	}
	if worked == 0 {
		t.Error("nothing ever worked")
	}
	k.gone(t, p)
	k.serve.stop()
}

// TestServeWithoutDescriptorsOnEngine checks that serve fails requests without free descriptors and recovers
// afterwards.
func TestServeWithoutDescriptorsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	p := k.running(t)
	var before unix.Rlimit
	if err := unix.Prlimit(k.serve.pid(), unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, spare := range []int{0, 1, 2, 4} {
		less := unix.Rlimit{Cur: limitFor(t, k.serve.pid(), spare), Max: before.Max}
		if err := unix.Prlimit(k.serve.pid(), unix.RLIMIT_NOFILE, &less, nil); err != nil {
			t.Fatal(err)
		}
		other := h.pod(t)
		for _, st := range steps() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := st.call(other, ctx, k.serve); err != nil {
				refused++
				t.Logf("%d descriptors to spare: %s: %v", spare, st.name, err)
			}
			if ctx.Err() != nil {
				t.Errorf("%d descriptors to spare: %s does not end", spare, st.name)
			}
			cancel()
		}
		for name, ask := range questions(p) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if err := ask(ctx, k.serve); err != nil {
				refused++
				t.Logf("%d descriptors to spare: %s: %v", spare, name, err)
			}
			if ctx.Err() != nil {
				t.Errorf("%d descriptors to spare: %s does not end", spare, name)
			}
			cancel()
		}
		if err := unix.Prlimit(k.serve.pid(), unix.RLIMIT_NOFILE, &before, nil); err != nil {
			t.Fatal(err)
		}
		k.truthful(t, other)
		k.gone(t, other)
	}
	if refused == 0 {
		t.Error("nothing was ever refused")
	}
	for name, ask := range questions(p) {
		if err := ask(t.Context(), k.serve); err != nil {
			t.Errorf("with descriptors again: %s: %v", name, err)
		}
	}
	k.truthful(t, p)
	k.gone(t, p)
	k.serve.stop()
}

// limitFor returns the limit that allows more additional descriptors. The kernel compares the limit with the number of
// the next descriptor, and lower numbers may be free.
func limitFor(t *testing.T, pid, more int) uint64 {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{}
	for _, fd := range open {
		taken[fd.Name()] = true
	}
	number := 0
	for ; taken[strconv.Itoa(number)] || more > 0; number++ {
		if !taken[strconv.Itoa(number)] {
			more--
		}
	}
	return uint64(number)
}
