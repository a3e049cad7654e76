package kuberuntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Errors of starting a container, with the names by which a kubelet shows them.
var (
	ErrCreateConfig = errors.New("CreateContainerConfigError")
	ErrCreate       = errors.New("CreateContainerError")
	ErrRun          = errors.New("RunContainerError")
	ErrPostStart    = errors.New("PostStartHookError")
)

// crashWait is an error while a container that ended waits for its next start. For one that
// was just killed by its probe the end before counts, as for the kubelet.
func (m *Manager) crashWait(p *v1.Pod, c *v1.Container, last *pod.ContainerStatus) error {
	if last == nil {
		return nil
	}
	key := crashKey(p, c)
	now := m.o.Now()
	if left, news := m.crashes.wait(key, last.FinishedAt, now); left > 0 {
		if news {
			m.waits(p, c.Name, EventBackOff, ErrCrashLoop, "back-off %s restarting failed container %s", left.Round(time.Second), c.Name)
		}
		return &retryError{err: ErrCrashLoop, after: left}
	}
	m.crashes.next(key, last.FinishedAt, now)
	return nil
}

// crashKey changes with what runs, so that a fixed image does not wait for its predecessor.
func crashKey(p *v1.Pod, c *v1.Container) string {
	h := fnv.New64a()
	// Not Resources.String: it prints how a quantity is held, which changes when one is read.
	if err := json.NewEncoder(h).Encode([]any{c.Name, c.Image, c.Resources}); err != nil {
		panic(err) // strings and quantities always marshal
	}
	return strings.Join([]string{p.Name, p.Namespace, string(p.UID), c.Name, strconv.FormatUint(h.Sum64(), 16)}, "_")
}

// startContainer brings one container up: image, configuration, create, start, hook.
func (s *syncing) startContainer(ctx context.Context, c *v1.Container, target *pod.ContainerStatus) error {
	m := s.m
	image, err := m.ensureImage(ctx, s.pod, c.Name, c.Image, c.ImagePullPolicy, s.set, s.config)
	if err != nil {
		return err
	}
	restarts := s.restarts(c)
	config, err := s.containerConfig(c, image, restarts, target)
	if err != nil {
		m.waits(s.pod, c.Name, EventFailed, ErrCreateConfig, "%v", err)
		return fmt.Errorf("%w: %w", ErrCreateConfig, err)
	}
	if err := os.MkdirAll(filepath.Join(m.o.Dirs.PodLogs(s.pod), c.Name), 0o755); err != nil {
		return fmt.Errorf("%w: make the log folder: %w", ErrCreateConfig, err)
	}
	created, err := m.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: s.sandbox, Config: config, SandboxConfig: s.config})
	if err != nil {
		if slices.ContainsFunc(config.GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetImage() != nil }) {
			err = fmt.Errorf("%w (it mounts an image, which not every runtime can)", err)
		}
		m.waits(s.pod, c.Name, EventFailed, ErrCreate, "%v", err)
		return fmt.Errorf("%w: %w", ErrCreate, err)
	}
	id := created.GetContainerId()
	m.event(s.pod, c.Name, EventCreated, "created container %s", shortID(id))
	if _, err := m.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		m.waits(s.pod, c.Name, EventFailed, ErrRun, "%v", err)
		return fmt.Errorf("%w: %w", ErrRun, err)
	}
	m.event(s.pod, c.Name, EventStarted, "started container %s", shortID(id))
	s.linkLog(c, id, config.GetLogPath())
	return s.postStart(ctx, c, id)
}

// restarts is one more than the last attempt's. Where that is gone, the log folder knows:
// a runtime that lost its containers must not write into the log of an earlier one.
func (s *syncing) restarts(c *v1.Container) int {
	if last := s.status.Container(c.Name); last != nil {
		return last.RestartCount + 1
	}
	return nextLog(filepath.Join(s.m.o.Dirs.PodLogs(s.pod), c.Name))
}

// nextLog is one more than the highest N of the N.log in a folder, rotated ones included.
func nextLog(dir string) int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	next := 0
	for _, entry := range entries {
		number, _, isLog := strings.Cut(entry.Name(), ".log")
		if n, err := strconv.Atoi(number); isLog && err == nil && n >= next {
			next = n + 1
		}
	}
	return next
}

func (s *syncing) containerConfig(c *v1.Container, image *runtimeapi.Image, restarts int, target *pod.ContainerStatus) (*runtimeapi.ContainerConfig, error) {
	in := criconfig.ContainerInput{
		Pod: s.pod, Container: c, Set: s.set, Restarts: restarts, ImageRef: image.GetId(), PodIPs: s.ips,
		ImageUser: criconfig.ImageUser{Name: image.GetUsername()},
	}
	if uid := image.GetUid(); uid != nil {
		in.ImageUser.UID = &uid.Value
	}
	if target != nil {
		in.TargetID = target.ID
	}
	env, err := criconfig.Env(s.pod, c, s.set, s.m.o.Host, s.ips)
	if err != nil {
		return nil, err
	}
	expand := func(text string) string { return criconfig.Expand(text, env) }
	in.Mounts, err = s.m.volumes.Mounts(s.pod, c, s.volumes, expand, func(ref string) string { return s.images[ref].GetId() })
	if err != nil {
		return nil, err
	}
	own, err := s.ownMounts(c, in.Mounts)
	if err != nil {
		return nil, err
	}
	in.Mounts = append(in.Mounts, own...)
	return s.m.generator.Container(in)
}

// ownMounts are the pod's hosts file and the file for the termination message.
func (s *syncing) ownMounts(c *v1.Container, have []*runtimeapi.Mount) ([]*runtimeapi.Mount, error) {
	const hosts = "/etc/hosts"
	var out []*runtimeapi.Mount
	uid := string(s.pod.UID)
	taken := map[string]bool{}
	for _, mount := range have {
		taken[filepath.Clean(mount.GetContainerPath())] = true
	}
	if !taken[hosts] && (len(s.ips) > 0 || s.pod.Spec.HostNetwork) {
		out = append(out, &runtimeapi.Mount{ContainerPath: hosts, HostPath: s.m.o.Dirs.Hosts(uid), SelinuxRelabel: true})
	}
	if path := c.TerminationMessagePath; path != "" && !taken[filepath.Clean(path)] {
		file, err := messagePath(s.m.o.Dirs.Container(uid, c.Name))
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: path, HostPath: file, SelinuxRelabel: true})
	}
	return out, nil
}

// messagePath makes a new file that any user of the container may write.
func messagePath(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "")
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(f.Chmod(0o666), f.Close())
}

// linkLog makes the link that log collectors of old look for. It is a convenience: a
// missing log or folder is no failure.
func (s *syncing) linkLog(c *v1.Container, id, logPath string) {
	dir := s.m.o.Dirs.LegacyLogs
	target := filepath.Join(s.m.o.Dirs.PodLogs(s.pod), logPath)
	if dir == "" {
		return
	}
	if _, err := os.Lstat(target); err != nil {
		return
	}
	if os.MkdirAll(dir, 0o755) != nil {
		return
	}
	link := filepath.Join(dir, legacyLogName(s.pod.Name, s.pod.Namespace, c.Name, id))
	if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
		s.m.warn(s.pod, c.Name, EventFailed, "link the log: %v", err)
	}
}

// legacyLogName fits into the 255 bytes that file systems allow.
func legacyLogName(name, namespace, container, id string) string {
	const suffix = ".log"
	front := name + "_" + namespace + "_" + container + "-" + id
	return front[:min(len(front), 255-len(suffix))] + suffix
}
