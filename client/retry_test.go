package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
)

func TestStopIsAskedAgainWhenContainerdLosesItsShim(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	stop := func() error {
		_, err := c.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: "x"})
		return err
	}
	closed := errors.New(`failed to kill container "x": ttrpc: closed: unknown`)
	calls := func() (n int) {
		for _, m := range s.Methods() {
			if m == "StopContainer" {
				n++
			}
		}
		return n
	}

	s.Fail("StopContainer", closed)
	if err := stop(); err == nil || calls() != 5 {
		t.Errorf("a shim that stays away: got %v after %d calls", err, calls())
	}
	before := calls()
	s.Before("StopContainer", func(context.Context) {
		if calls() == before+2 { // the calls after this one succeed
			s.Fail("StopContainer", nil)
		}
	})
	s.Fail("StopContainer", closed)
	if err := stop(); err != nil || calls() != before+3 {
		t.Errorf("a shim that is back: got %v after %d calls", err, calls()-before)
	}
	before = calls()
	s.Before("StopContainer", nil)
	s.Fail("StopContainer", errors.New("permission denied"))
	if err := stop(); err == nil || calls() != before+1 {
		t.Errorf("another error: got %v after %d calls", err, calls()-before)
	}
	s.Fail("RunPodSandbox", closed)
	if _, err := c.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{}); err == nil {
		t.Error("no error of a call that must not be repeated")
	}
	if n := len(slices.DeleteFunc(s.Methods(), func(m string) bool { return m != "RunPodSandbox" })); n != 1 {
		t.Errorf("a call that is not idempotent was made %d times", n)
	}
}
