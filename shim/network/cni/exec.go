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

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/internal/proctree"
)

const (
	callTime = 220 * time.Second
	// strayTime limits the wait for plugins of a killed shim. If it expires, the change is made without the lock.
	strayTime              = 30 * time.Second
	busyRetries, busyPause = 5, time.Second
	outputGrace            = 5 * time.Second
)

// podLock is held during a change to a sandbox's network. It is a file lock, which plugins and their children inherit.
// If the shim is killed, the lock is held until the last plugin process has ended. The next change waits for the lock up
// to strayTime, so that a tear-down does not overlap a set-up.
//
// The file is removed when the change is complete. A remaining file records a change that failed or was interrupted. It
// is the only record of a set-up that was interrupted before libcni wrote its cache.
type podLock struct {
	*libcni.CNIConfig // runs plugins that inherit the lock

	file *filelock.Lock // nil if the lock could not be taken; the change is made without it
	free func()
}

func (p *Plugin) exclusive(ctx context.Context, id string) (context.Context, func(), error) {
	unlock, err := p.pods.Lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	return ctx, func() {
		cancel()
		unlock()
	}, nil
}

func (p *Plugin) lock(ctx context.Context, id string) (context.Context, podLock, error) {
	ctx, free, err := p.exclusive(ctx, id)
	if err != nil {
		return nil, podLock{}, err
	}
	file, err := p.lockFile(ctx, id)
	if err != nil && ctx.Err() != nil {
		free()
		return nil, podLock{}, fmt.Errorf("wait for CNI plugins that work for pod sandbox %s: %w", id, err)
	}
	starter := &starter{}
	if err != nil {
		p.options.Log.Warn("cannot lock the network of a pod sandbox; CNI plugins may overlap if the shim is killed", "id", id, "err", err)
	} else {
		starter.lock = file.File
	}
	return ctx, podLock{libcni.NewCNIConfigWithCacheDir(p.options.BinDirs, p.options.CacheDir, starter), file, free}, nil
}

func (l podLock) unlock(complete bool) {
	switch {
	case l.file == nil:
	case complete:
		_ = l.file.Remove()
	default:
		_ = l.file.Release()
	}
	l.free()
}

func (p *Plugin) lockPath(id string) string {
	return filepath.Join(p.options.CacheDir, "crishim", id)
}

func (p *Plugin) lockFile(ctx context.Context, id string) (*filelock.Lock, error) {
	if filepath.Base(id) != id || id == "." || id == ".." || id == string(filepath.Separator) {
		return nil, fmt.Errorf("invalid pod sandbox id %q", id)
	}
	path := p.lockPath(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, strayTime)
	defer cancel()
	return filelock.Wait(ctx, path, nil)
}

// gcLock takes a lock between processes. Set-ups share the lock and wait for it until ctx ends. The garbage collection
// takes it exclusively and does not wait. gcLock returns nil if the lock was not available.
func (p *Plugin) gcLock(ctx context.Context, how int) (*os.File, error) {
	dir := p.lockPath("")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		if ok, err := filelock.TryDir(f, how); ok {
			return f, nil
		} else if err != nil || how == unix.LOCK_EX || ctx.Err() != nil {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (p *Plugin) interrupted() ([]string, error) {
	entries, err := os.ReadDir(p.lockPath(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("CNI cache: %w", err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// starter runs plugins. When ctx ends, by a timeout or with the request, it kills the plugin and its descendants, so that
// none of them runs during a tear-down.
type starter struct {
	version.PluginDecoder

	lock *os.File // inherited by the plugin
}

var _ invoke.Exec = &starter{}

func (*starter) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

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
	cmd := proctree.Command(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(config), &out, &errs
	if s.lock != nil {
		cmd.ExtraFiles = []*os.File{s.lock}
	}
	// In its own session the plugin does not receive Ctrl-C, and all its children can be killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = outputGrace
	err := cmd.Run()
	if err == nil || errors.Is(err, syscall.ETXTBSY) {
		return out.Bytes(), err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s was killed: %w", filepath.Base(path), ctx.Err())
	}
	reported := types.Error{}
	if json.Unmarshal(out.Bytes(), &reported) == nil && reported.Msg != "" {
		return nil, &reported
	}
	for _, text := range []string{errs.String(), out.String()} {
		if text = strings.TrimSpace(text); text != "" {
			return nil, fmt.Errorf("%w: %q", err, text)
		}
	}
	return nil, fmt.Errorf("no error message: %w", err)
}
