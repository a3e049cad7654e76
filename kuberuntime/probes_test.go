package kuberuntime

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/kuberuntime/plan"
)

// TestRuntimeErrorsAreNoProbeFailures: a command that the runtime cannot run is not a failed probe. A command that
// fails is.
func TestRuntimeErrorsAreNoProbeFailures(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		command string
		err     error
		kept    bool
	}{
		{"unavailable", "true", status.Error(codes.Unavailable, "connection refused"), true},
		{"cannot exec", "true", status.Error(codes.Unknown, "no such container"), true},
		{"runs too long", "true", status.Error(codes.DeadlineExceeded, "command timed out"), false},
		{"fails", "exit 1", nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p, set := parse(t, `
  containers: [{name: a, image: "busybox:1", livenessProbe: {exec: {command: [sh, -c, "`+c.command+`"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}}]`)
			ctx := deadline(t)
			if _, err := f.Up(ctx, p, set, false); err != nil {
				t.Fatal(err)
			}
			f.stub.Fail("ExecSync", c.err)
			first := f.status(t, p)
			f.WatchProbes(p, first)
			probed := func() int {
				return strings.Count(strings.Join(f.stub.Methods(), " "), "ExecSync")
			}
			enough := func() bool {
				if c.kept {
					return probed() >= 2
				}
				return f.prober.Result(first.Container("a").ID, plan.Liveness) == plan.Failure
			}
			for !enough() {
				if err := f.pause(ctx, poll); err != nil {
					t.Fatalf("no attempt: %v", err)
				}
			}
			kills := f.SyncPod(ctx, p, set, first).Actions.Kill
			if (len(kills) == 0) != c.kept {
				t.Errorf("kept %t, want %t", len(kills) == 0, c.kept)
			}
		})
	}
}
