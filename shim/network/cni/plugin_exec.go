package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/crishim/crishim/internal/program"
)

// starter starts plugins for libcni. A plugin that takes too long is ended
// together with those that it has started itself, so that none of them goes on
// behind the back of a tear-down.
type starter struct {
	version.PluginDecoder

	// held is inherited by the plugin and by all that it starts, see turn.
	held *os.File
}

var _ invoke.Exec = &starter{}

// FindInPath implements invoke.Exec.
func (*starter) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

// Some plugins may be in the middle of being installed.
const (
	busyRetries = 5
	busyPause   = time.Second
)

// outputGrace is how long a plugin's output is waited for after its end.
const outputGrace = 5 * time.Second

// ExecPlugin implements invoke.Exec: the configuration goes in, what the plugin
// says comes out.
func (s *starter) ExecPlugin(ctx context.Context, path string, config []byte, environ []string) ([]byte, error) {
	for try := 0; ; try++ {
		out, err := s.run(ctx, path, config, environ)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyRetries {
			return out, err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (s *starter) run(ctx context.Context, path string, config []byte, environ []string) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd := program.Command(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(config), &out, &errs
	if s.held != nil {
		cmd.ExtraFiles = []*os.File{s.held}
	}
	// A group of its own: to end all of it, and so that a Ctrl-C at the terminal
	// leaves it to crishim to take back what was begun.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = outputGrace
	err := cmd.Run()
	if err == nil || errors.Is(err, syscall.ETXTBSY) {
		return out.Bytes(), err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s was ended before it was done: %w", filepath.Base(path), ctx.Err())
	}
	return nil, failure(err, out.Bytes(), errs.String())
}

// failure is what a plugin says of its error on its standard output, else what
// there is.
func failure(err error, out []byte, errs string) error {
	said := types.Error{}
	if json.Unmarshal(out, &said) == nil && said.Msg != "" {
		return &said
	}
	for _, text := range []string{errs, string(out)} {
		if text = strings.TrimSpace(text); text != "" {
			return fmt.Errorf("%w: %q", err, text)
		}
	}
	return fmt.Errorf("it said nothing: %w", err)
}
