package container

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/crishim/crishim/client/stream"
)

func TestWhichSessionsLeaveAProcess(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"success":               {t.Context(), nil, false},
		"a status":              {t.Context(), &stream.ExitError{Code: 3}, false},
		"a status in time":      {ended, &stream.ExitError{Code: 3}, false},
		"out of time":           {ended, errors.New("the command did not end within 1s"), true},
		"a signal":              {t.Context(), &stream.SignalError{Signal: syscall.SIGINT}, true},
		"detached":              {t.Context(), errors.Join(stream.ErrDetached, errors.New("not our shim")), true},
		"refused":               {t.Context(), &stream.UpgradeError{Code: 404}, false},
		"failed in the runtime": {t.Context(), &stream.RemoteError{Message: "no such program"}, false},
	} {
		if got := abandoned(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
