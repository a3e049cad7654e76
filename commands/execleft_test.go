package commands

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/shim/host/proctree"
)

// Of several processes that came at the same time, none is ended by guessing.
func TestWhichProcessIsOurs(t *testing.T) {
	self, err := proctree.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	parent, err := proctree.Find(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	gone := proctree.Process{PID: self.PID, Start: self.Start + 1}
	for name, tt := range map[string]struct {
		seen  []execSeen
		want  proctree.Process
		found bool
	}{
		"nobody":                             {},
		"with our command line":              {[]execSeen{{self, true}}, self, true},
		"beside another one":                 {[]execSeen{{parent, false}, {self, true}}, self, true},
		"twins":                              {[]execSeen{{parent, true}, {self, true}}, proctree.Process{}, false},
		"twins of whom one is gone":          {[]execSeen{{gone, true}, {self, true}}, proctree.Process{}, false},
		"turned into another program":        {[]execSeen{{gone, false}, {self, false}}, self, true},
		"one of two, both something else":    {[]execSeen{{parent, false}, {self, false}}, proctree.Process{}, false},
		"something else that has gone again": {[]execSeen{{gone, false}}, proctree.Process{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &execWatch{seen: tt.seen}
			if got, found := w.process(); got != tt.want || found != tt.found {
				t.Errorf("got %v, %v, want %v, %v", got, found, tt.want, tt.found)
			}
		})
	}
}

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
