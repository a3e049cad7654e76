package reliability

import (
	"bytes"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/faultproxy"
)

// TestEngineStopsInASessionOnEngine takes the engine away in the middle of an
// attach. The client ends, says why, and makes up no status.
func TestEngineStopsInASessionOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.pod(t)
	proxy := faultproxy.Start(t, h.endpoint())
	s := startServe(t, proxy.Host)
	for _, step := range []func() error{
		func() error { return p.run(t.Context(), s) },
		func() error { return p.create(t.Context(), s) },
		func() error { return p.start(t.Context(), s) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for name, endpoint := range map[string]string{
		"embedded": strings.Replace(proxy.Host, "unix://", "docker://", 1),
		"serve":    s.endpoint(),
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Set(nil)
			var out, errs bytes.Buffer
			cmd := exec.Command("crishim", "-r", endpoint, "attach", p.containerID)
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			waitFor(t, patience, func() error {
				if !slices.ContainsFunc(proxy.Calls(), func(call string) bool { return strings.HasSuffix(call, "/attach") }) {
					return errors.New("the attach has not reached the engine")
				}
				return nil
			})
			proxy.Down(true)
			defer proxy.Down(false)
			select {
			case err := <-ended:
				if err == nil || !strings.HasPrefix(errs.String(), "crishim: ") {
					t.Errorf("got %v and %q, want a failure that is explained", err, errs.String())
				}
			case <-time.After(patience):
				t.Error("the client goes on without the engine")
			}
		})
	}
}
