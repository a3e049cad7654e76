package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/program"
)

// workDir, below the cache, holds a file for each sandbox that plugins work for.
const workDir = "crishim"

// strayTime is how long plugins are waited for that a killed shim has left
// working. One that takes longer hangs, or has started something that stays.
const strayTime = 30 * time.Second

// lockPoll is how often a lock that somebody else has is tried.
const lockPoll = 20 * time.Millisecond

// A turn is the right to change one sandbox's network. While it lasts its file
// is locked, and the lock is inherited by plugins and by what they start: where a
// shim is killed the lock stays until the last of them has ended. So nobody
// tears down what is still being set up.
//
// The file goes when the work was done. One that stays is the record of a
// set-up that was interrupted before libcni wrote it down.
type turn struct {
	*libcni.CNIConfig

	file *os.File // nil: there is no place for it
	free func()
}

// turn waits for other work on the pod and bounds the plugins' time.
func (p *Plugin) turn(ctx context.Context, id string) (context.Context, turn, error) {
	ctx, free, err := p.exclusive(ctx, id)
	if err != nil {
		return nil, turn{}, err
	}
	file, err := p.lockFile(ctx, id)
	if err != nil && ctx.Err() != nil {
		free()
		return nil, turn{}, fmt.Errorf("wait for CNI plugins that work for pod sandbox %s: %w", id, err)
	}
	if err != nil {
		p.options.Log.Warn("work on the network of a pod sandbox is not safe against being killed", "id", id, "err", err)
	}
	config := libcni.NewCNIConfigWithCacheDir(p.options.BinDirs, p.options.CacheDir, &starter{held: file})
	return ctx, turn{config, file, free}, nil
}

// end gives the turn back. What was not done stays recorded.
func (t turn) end(done bool) {
	if t.file != nil {
		if done {
			_ = os.Remove(t.file.Name()) // it is locked, so it is ours
		}
		_ = t.file.Close()
	}
	t.free()
}

func (p *Plugin) workFile(id string) string {
	return filepath.Join(p.options.CacheDir, workDir, id)
}

// lockFile opens a sandbox's file and locks it. Where strays keep the lock for
// too long the file is given all the same.
func (p *Plugin) lockFile(ctx context.Context, id string) (*os.File, error) {
	if filepath.Base(id) != id || id == "." || id == ".." || id == string(filepath.Separator) {
		return nil, fmt.Errorf("%q is no id of a pod sandbox", id)
	}
	path := p.workFile(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		patient, cancel := context.WithTimeout(ctx, strayTime)
		err = flock(patient, f, unix.LOCK_EX)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, errors.Join(ctx.Err(), f.Close())
		case err != nil:
			p.options.Log.Warn("what an earlier CNI plugin has started for a pod sandbox goes on; not waiting for it any longer", "id", id, "err", err)
			return f, nil
		case is(f, path):
			return f, nil
		}
		// Whoever had it was done with it, and removed it.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// gate is what keeps set-ups, which share it, apart from who collects garbage, in
// other processes too.
func (p *Plugin) gate(ctx context.Context, how int) (*os.File, error) {
	dir := p.workFile("")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := flock(ctx, f, how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// flock takes a lock, and waits for it until the context ends unless how says
// not to.
func flock(ctx context.Context, f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if how&unix.LOCK_NB != 0 || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// is reports whether an open file is still the one at a path.
func is(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

// interrupted are the sandboxes whose file was left by somebody who did not come
// to the end of the work, or is at it.
func (p *Plugin) interrupted() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(p.options.CacheDir, workDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("CNI cache: %w", err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, nil
}

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
