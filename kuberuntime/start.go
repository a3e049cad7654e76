package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/ocierror"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// Errors of starting a container. Their texts are the kubelet's waiting reasons.
var (
	ErrCreateConfig = errors.New("CreateContainerConfigError")
	ErrCreate       = errors.New("CreateContainerError")
	ErrRun          = errors.New("RunContainerError")
	ErrPostStart    = errors.New("PostStartHookError")
)

// prepare creates the record, the volumes, the sandbox if wanted, and the hosts file, and pulls the images of image
// volumes. The record comes first, because garbage collection uses it to find volumes of a pod without a sandbox.
func (s *syncing) prepare(ctx context.Context) error {
	if err := s.m.recordPod(ctx, s.pod, s.status); err != nil {
		return err
	}
	s.m.recordState(ctx, s.pod, s.status, nil) // the pod has a directory now
	if err := s.checkRuntime(ctx); err != nil {
		s.m.warn(s.pod, "", EventSandboxFailed, "%v", err)
		return err
	}
	made, err := s.m.volumes.Setup(s.pod, s.set)
	if err != nil {
		s.m.warn(s.pod, "", EventVolumes, "%v", err)
		return err
	}
	if s.actions.CreateSandbox {
		if err := s.m.volumes.OwnClaims(ctx, s.pod); err != nil {
			return err
		}
	}
	s.volumes = made
	s.config = s.m.generator.Sandbox(s.pod, s.actions.Attempt)
	own, err := s.m.identify(ctx)
	if err != nil {
		return err
	}
	s.config.Linux.CgroupParent = cmp.Or(s.config.Linux.CgroupParent, criconfig.DefaultCgroupParent(own.config, s.handler))
	if s.users, err = s.m.userNamespace(ctx, s.pod); err != nil {
		s.m.warn(s.pod, "", EventSandboxFailed, "%v", err)
		return err
	}
	s.config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = s.users
	if s.actions.CreateSandbox {
		err = s.createSandbox(ctx)
	}
	// An earlier process may have been interrupted before the check. Containers show that the sandbox passed it.
	checked := slices.ContainsFunc(s.status.Containers, func(c *pod.ContainerStatus) bool { return c.SandboxID == s.sandbox })
	if err == nil && s.pod.Spec.Resources != nil && !checked {
		err = s.checkPodCgroup(ctx)
	}
	if err != nil {
		s.m.warn(s.pod, "", EventSandboxFailed, "%v", err)
		return err
	}
	if len(s.ips) > 0 || s.pod.Spec.HostNetwork {
		if err := writeHostsFile(s.m.o.Dirs.Hosts(string(s.pod.UID)), criconfig.HostsFile(s.pod, s.m.o.Host, s.ips)); err != nil {
			return fmt.Errorf("write the pod's hosts file: %w", err)
		}
	}
	s.images = map[string]*runtimeapi.Image{}
	for _, v := range s.pod.Spec.Volumes {
		if v.Image == nil {
			continue
		}
		image, err := s.m.ensureImage(ctx, s.pod, "", v.Image.Reference, v.Image.PullPolicy, s.set, s.config)
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		s.images[v.Image.Reference] = image
	}
	return nil
}

// checkRuntime finds the handler of the pod's RuntimeClass, like the kubelet's runtimeClassManager, and refuses fields that
// the handler does not support.
func (s *syncing) checkRuntime(ctx context.Context) error {
	if name := s.pod.Spec.RuntimeClassName; name != nil {
		class := s.set.RuntimeClasses[*name]
		if class == nil {
			return fmt.Errorf("RuntimeClass %s not found", *name)
		}
		s.handler = class.Handler
	}
	return s.checkFeatures(ctx)
}

// createSandbox creates and starts the pod's sandbox, like the kubelet's createPodSandbox.
func (s *syncing) createSandbox(ctx context.Context) error {
	if err := os.MkdirAll(s.config.GetLogDirectory(), 0o755); err != nil {
		return fmt.Errorf("make the log directory: %w", err)
	}
	if s.pod.Spec.Resources != nil {
		if err := s.makePodCgroup(ctx); err != nil {
			return err
		}
	}
	release, err := s.m.TakeHostPorts(ctx, string(s.pod.UID), hostPorts(s.pod))
	if err != nil {
		return err
	}
	created, err := s.m.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: s.config, RuntimeHandler: s.handler})
	if released := release(); err == nil {
		err = released
	}
	if err != nil {
		return err
	}
	resp, err := s.m.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: created.GetPodSandboxId()})
	if err != nil {
		return err
	}
	s.sandbox = created.GetPodSandboxId()
	s.ips = addresses([]*runtimeapi.PodSandboxStatus{resp.GetStatus()}, s.m.o.Host.IPs)
	s.m.event(s.pod, "", eventSandboxCreated, "created sandbox %s%s", shortID(s.sandbox), withAddress(s.ips))
	limited := s.pod.Annotations[kube.AnnotationIngress] + s.pod.Annotations[kube.AnnotationEgress]
	if own, err := s.m.identify(ctx); err == nil && own.bridge && limited != "" && !s.pod.Spec.HostNetwork {
		s.m.warn(s.pod, "", eventBandwidth, "the engine's bridge does not limit bandwidth, CNI does: its annotations have no effect")
	}
	return nil
}

func withAddress(ips []string) string {
	if len(ips) > 0 {
		return " with address " + ips[0]
	}
	return ""
}

func shortID(id string) string { return id[:min(len(id), 13)] }

// writeHostsFile writes in place, like the kubelet's ensureHostsFile, because the file itself is mounted in containers. It
// does not read the file, which containers may have changed. It truncates after writing, so that concurrent readers of an
// unchanged file see no change.
func writeHostsFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := bounded.OpenFile(path, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	return errors.Join(err, f.Close())
}

// startContainer pulls the image of one container if necessary, creates and starts the container, and runs its
// postStart hook. The kubelet's function has the same name.
func (s *syncing) startContainer(ctx context.Context, c *v1.Container, target *pod.ContainerStatus) error {
	m := s.m
	image, err := m.ensureImage(ctx, s.pod, c.Name, c.Image, c.ImagePullPolicy, s.set, s.config)
	if err != nil {
		return err
	}
	logs := filepath.Join(m.o.Dirs.PodLogs(s.pod), c.Name)
	// The attempt is also the number of the log file. Log files of an earlier pod raise the attempt, but not the
	// restart count.
	restarts, attempt := 0, nextLog(logs)
	if last := s.status.Container(c.Name); last != nil {
		restarts = plan.RestartCount(s.pod, last)
		attempt = max(attempt, restarts, last.Attempt+1)
	}
	config, err := s.containerConfig(c, image, restarts, attempt, target)
	if err != nil {
		m.reportWaiting(s.pod, c.Name, eventFailed, ErrCreateConfig, "%v", err)
		return fmt.Errorf("%w: %w", ErrCreateConfig, err)
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("%w: make the log directory: %w", ErrCreateConfig, err)
	}
	created, err := m.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: s.sandbox, Config: config, SandboxConfig: s.config})
	if err != nil {
		if slices.ContainsFunc(config.GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetImage() != nil }) {
			err = fmt.Errorf("%w (it mounts an image, which not every runtime can)", err)
		}
		m.reportWaiting(s.pod, c.Name, eventFailed, ErrCreate, "%v", err)
		return fmt.Errorf("%w: %w", ErrCreate, err)
	}
	id := created.GetContainerId()
	m.event(s.pod, c.Name, EventCreated, "created container %s", shortID(id))
	if _, err := m.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		err = ocierror.Error{Err: err}
		m.reportWaiting(s.pod, c.Name, eventFailed, ErrRun, "%v", err)
		return fmt.Errorf("%w: %w", ErrRun, err)
	}
	m.event(s.pod, c.Name, EventStarted, "started container %s", shortID(id))
	s.linkLog(c, id, config.GetLogPath())
	return s.postStart(ctx, c, id)
}

// nextLog returns one more than the highest N of the N.log files in a directory, including rotated files, like the kubelet's
// calcRestartCountByLogDir.
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

// containerConfig returns the configuration of a container, like the kubelet's generateContainerConfig.
func (s *syncing) containerConfig(c *v1.Container, image *runtimeapi.Image, restarts, attempt int, target *pod.ContainerStatus) (*runtimeapi.ContainerConfig, error) {
	in := criconfig.ContainerInput{
		Pod: s.pod, Container: c, Restarts: restarts, PodRestarts: s.actions.Restarts, Attempt: attempt, ImageRef: image.GetId(),
		ImageUser: criconfig.ImageUser{Name: image.GetUsername()},
	}
	if uid := image.GetUid(); uid != nil {
		in.ImageUser.UID = &uid.Value
	}
	if target != nil {
		in.TargetID = target.ID
	}
	files := func(name, path string) ([]byte, error) { return volume.ReadFile(s.volumes[name], path) }
	var err error
	if in.Env, err = criconfig.Env(s.pod, c, s.set, s.m.o.Host, s.ips, files); err != nil {
		return nil, err
	}
	expand := func(text string) (string, error) { return criconfig.ExpandAll(text, in.Env) }
	in.Mounts, err = s.m.volumes.Mounts(s.pod, c, s.volumes, expand, func(ref string) string { return s.images[ref].GetId() })
	if err != nil {
		return nil, err
	}
	s.possible(c, in.Mounts)
	const hosts = "/etc/hosts"
	uid, taken := string(s.pod.UID), map[string]bool{}
	for _, mount := range in.Mounts {
		taken[filepath.Clean(mount.GetContainerPath())] = true
	}
	if !taken[hosts] && (len(s.ips) > 0 || s.pod.Spec.HostNetwork) {
		in.Mounts = append(in.Mounts, &runtimeapi.Mount{ContainerPath: hosts, HostPath: s.m.o.Dirs.Hosts(uid), SelinuxRelabel: true})
	}
	if path := c.TerminationMessagePath; path != "" && !taken[filepath.Clean(path)] {
		file, err := newMessageFile(s.m.o.Dirs.Container(uid, c.Name))
		if err != nil {
			return nil, err
		}
		in.Mounts = append(in.Mounts, &runtimeapi.Mount{ContainerPath: path, HostPath: file, SelinuxRelabel: true})
	}
	config, err := s.m.generator.Container(in)
	if err == nil {
		mapIDs(config, s.users)
	}
	return config, err
}

// newMessageFile creates a file for a termination message that any user of the container may write.
func newMessageFile(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "")
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(f.Chmod(0o666), f.Close())
}

// linkLog creates the link for old log collectors. A missing log or directory is not an error.
func (s *syncing) linkLog(c *v1.Container, id, logPath string) {
	dir, target := s.m.o.Dirs.LegacyLogs, filepath.Join(s.m.o.Dirs.PodLogs(s.pod), logPath)
	if _, err := os.Lstat(target); err != nil || dir == "" || os.MkdirAll(dir, 0o755) != nil {
		return
	}
	link := filepath.Join(dir, legacyLogName(s.pod.Name, s.pod.Namespace, c.Name, id))
	if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
		s.m.warn(s.pod, c.Name, eventFailed, "link the log: %v", err)
	}
}

// legacyLogName returns a file name of at most 255 bytes, the limit of file systems.
func legacyLogName(name, namespace, container, id string) string {
	const suffix = ".log"
	front := name + "_" + namespace + "_" + container + "-" + id
	return front[:min(len(front), 255-len(suffix))] + suffix
}

// crashWait returns an error while an exited container has to wait before its next start, like the kubelet's doBackOff.
func (m *Manager) crashWait(p *v1.Pod, c *v1.Container, last *pod.ContainerStatus) error {
	if last == nil {
		return nil
	}
	key, now := crashKey(p, c), m.o.Now()
	if left, whole, isNew := m.backOff.wait(key, last.FinishedAt, now); left > 0 {
		if isNew {
			m.reportWaiting(p, c.Name, eventBackOff, ErrCrashLoopBackOff, "back-off %s restarting failed container %s", whole, c.Name)
		}
		return &retryError{err: ErrCrashLoopBackOff, after: left}
	}
	m.backOff.next(key, last.FinishedAt, now)
	return nil
}

// crashKey returns the back-off key of a container, like the kubelet's GetBackoffKey. The key depends on image and
// resources, so that a corrected container does not wait for the back-off of its predecessor.
func crashKey(p *v1.Pod, c *v1.Container) string {
	h := fnv.New64a()
	// Resources.String would print the internal form of quantities, which changes when a quantity is formatted.
	if err := json.NewEncoder(h).Encode([]any{c.Name, c.Image, c.Resources}); err != nil {
		panic(err) // strings and quantities always marshal
	}
	return strings.Join([]string{p.Name, p.Namespace, string(p.UID), c.Name, strconv.FormatUint(h.Sum64(), 16)}, "_")
}

// The kubelet's back-off for pulls and crashing containers.
const (
	backoffInitial = 10 * time.Second
	backoffMax     = 300 * time.Second
)

// backoff doubles the wait of a key with each retry. client-go's flowcontrol.Backoff, which the kubelet uses, returns
// neither the remaining time nor the last try, and its GC drops keys that may still wait after a late failure.
type backoff struct {
	mu      sync.Mutex
	entries map[string]backoffEntry
}

type backoffEntry struct {
	delay time.Duration
	last  time.Time
	known time.Time // time of the last failure for which wait returned isNew
}

func newBackoff() *backoff { return &backoff{entries: map[string]backoffEntry{}} }

// wait returns the remaining and the whole back-off of key after a failure at the time since. isNew is true on the
// first call for this failure.
func (b *backoff) wait(key string, since, now time.Time) (left, whole time.Duration, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry, ok := b.entries[key]
	// A clock that was set back does not extend the wait.
	left = min(since.Add(entry.delay).Sub(now), entry.delay)
	if !ok || forgotten(entry, since) || left <= 0 {
		return 0, 0, false
	}
	isNew = !entry.known.Equal(since)
	entry.known = since
	b.entries[key] = entry
	return left, entry.delay, isNew
}

// next records a new try of key after a failure at the time since, and doubles the back-off. If the failure was long
// after the last try, the back-off starts again at backoffInitial.
func (b *backoff) next(key string, since, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delay := backoffInitial
	if entry, ok := b.entries[key]; ok && !forgotten(entry, since) {
		delay = min(2*entry.delay, backoffMax)
	}
	b.entries[key] = backoffEntry{delay: delay, last: now}
}

// last returns when key was last tried.
func (b *backoff) last(key string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[key].last
}

func (b *backoff) reset(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, key)
}

// forgotten reports whether a failure at the given time is long after the last try.
func forgotten(e backoffEntry, at time.Time) bool { return at.Sub(e.last) > 2*backoffMax }

// collect drops entries after 4*backoffMax. A container may fail up to 2*backoffMax after its last try, and its wait
// starts then.
func (b *backoff) collect(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.entries, func(_ string, e backoffEntry) bool { return forgotten(e, now.Add(-2*backoffMax)) })
}
