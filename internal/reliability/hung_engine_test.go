package reliability

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/faultproxy"
)

// TestEngineHangsOnEngine: an engine that was sent SIGSTOP keeps its connections and
// answers nothing. serve says so within 15 s, takes it back within 10 s, and calls end at
// their deadline meanwhile.
func TestEngineHangsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	proxy := faultproxy.Start(t, h.endpoint())
	s := startServe(t, proxy.Host)
	ready := func(want bool) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := s.Status(ctx, &runtimeapi.StatusRequest{})
			if err != nil {
				return err
			}
			for _, c := range r.GetStatus().GetConditions() {
				if c.GetType() == runtimeapi.RuntimeReady && c.GetStatus() != want {
					return fmt.Errorf("RuntimeReady is %t: %s", c.GetStatus(), c.GetMessage())
				}
			}
			return nil
		}
	}
	wait(t, ready(true))
	wait(t, func() error { // until lists come from memory: then only a look at the engine tells
		before := len(proxy.Calls())
		if _, err := s.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
			return err
		}
		if len(proxy.Calls()) != before {
			return errors.New("the engine is asked")
		}
		return nil
	})
	thaw := proxy.Freeze()
	defer thaw()
	began := time.Now()
	wait(t, ready(false))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("RuntimeReady was true for %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began = time.Now()
	_, err := s.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded || took > 10*time.Second {
		t.Errorf("a list ended after %s with %v", took, err)
	}
	thaw()
	began = time.Now()
	wait(t, ready(true))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("RuntimeReady was false for %s", took)
	}
}
