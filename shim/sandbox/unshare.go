package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/system"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim/host"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/pause"
)

// An unshared sandbox is one that the engine starts on the host's network, which it
// does in half the time, and whose pause process makes a network namespace itself
// before anything else. CNI then connects that one. The label that says so wins
// over what the engine thinks everywhere.

// errNotUnshared is the class of failures that the usual way may not have.
var errNotUnshared = errors.New("the pause process has no network namespace of its own")

const (
	// unshareTime is how long the pause process may take, which is some
	// milliseconds on a machine that has nothing else to do.
	unshareTime = 10 * time.Second
	unsharePoll = time.Millisecond
)

// unshares says whether a new pod is to be an unshared one. It must look the same
// from inside in every respect, so whatever the engine does otherwise for pods on
// the host's network goes the usual way.
func (s *Service) unshares(c *runtimeapi.PodSandboxConfig, f facts, info system.Info) bool {
	return s.unshare.Load() && s.pauseImage == "" && f.handler == "" && f.seccomp == nil &&
		f.network.Name() == podnetwork.NameCNI && engineUnshares(info) && podUnshares(c)
}

// engineUnshares: an older engine prepares its namespaces in another way, a remapped
// user may make none, and not every OCI runtime runs processes of the host's kernel.
func engineUnshares(info system.Info) bool {
	major, _, _ := strings.Cut(info.ServerVersion, ".")
	version, err := strconv.Atoi(major)
	return err == nil && version >= 20 &&
		slices.Contains([]string{"runc", "crun", "io.containerd.runc.v2"}, info.DefaultRuntime) &&
		!slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
			return strings.HasPrefix(o, "name=userns") || strings.HasPrefix(o, "name=rootless")
		})
}

// podUnshares: a pod on the host's network gets the host's name where it has none,
// the host's resolv.conf where it has no name servers, and no settings of networks;
// and a confined or unprivileged pause process may not be able to unshare.
func podUnshares(c *runtimeapi.PodSandboxConfig) bool {
	for name := range c.GetLinux().GetSysctls() {
		if strings.HasPrefix(name, "net") {
			return false
		}
	}
	sc := c.GetLinux().GetSecurityContext()
	return c.GetHostname() != "" && len(c.GetDnsConfig().GetServers()) > 0 &&
		sc.GetRunAsUser().GetValue() == 0 && sc.GetSelinuxOptions() == nil &&
		sc.GetApparmor().GetProfileType() != runtimeapi.SecurityProfile_Localhost
}

// hostsMark is an entry for the pod's hosts file. Where there is one the engine
// starts from the file that other pods get, and not from the host's.
const hostsMark = "crishim.invalid"

func planUnshared(s *spec) {
	s.config.Cmd = []string{pause.Unshare}
	s.host.NetworkMode = "host"
	s.host.CapDrop, s.host.CapAdd = []string{"ALL"}, []string{"SYS_ADMIN"}
	s.host.ExtraHosts = []string{hostsMark + ":127.0.0.1"}
}

// cannotUnshare notes that it is of no use to try again.
func (s *Service) cannotUnshare(err error) {
	if s.unshare.CompareAndSwap(true, false) {
		s.log.Warn("the fast pod network does not work here; pods get theirs in the usual way from now on", "err", err)
	}
}

// unshared waits until the pause process of a new sandbox has its namespace, and
// does what the engine has done in those that it makes.
func (s *Service) unshared(ctx context.Context, b box) error {
	netns, err := s.awaitNetNS(ctx, b)
	if err != nil {
		return err
	}
	if err := errors.Join(host.PrepareNetNS(netns), unmark(b.c.HostsPath)); err != nil {
		return fmt.Errorf("%w: %w", errNotUnshared, err)
	}
	return nil
}

func (s *Service) awaitNetNS(ctx context.Context, b box) (string, error) {
	patience := time.NewTimer(unshareTime)
	defer patience.Stop()
	ticker := time.NewTicker(unsharePoll)
	defer ticker.Stop()
	for {
		if netns := b.pod().NetNS; netns != "" {
			return netns, nil
		}
		if !host.IsContainerProcess(b.c.State.Pid, b.c.ID) {
			if err := s.ended(ctx, b); err != nil {
				return "", err
			}
		}
		select {
		case <-ticker.C:
		case <-patience.C:
			return "", fmt.Errorf("%w: it was waited for %s", errNotUnshared, unshareTime)
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the sandbox's network namespace: %w", ctx.Err())
		}
	}
}

// ended is an error where the sandbox's process is not seen because it has ended,
// or is not this host's.
func (s *Service) ended(ctx context.Context, b box) error {
	now, err := s.find(ctx, b.c.ID)
	switch {
	case err != nil:
		return err
	case now.running():
		return nil // it has not been noticed yet
	case now.c.State.ExitCode == pause.Unable:
		return fmt.Errorf("%w: it may not make one", errNotUnshared)
	}
	return fmt.Errorf("%w: it ended with status %d", errNotUnshared, now.c.State.ExitCode)
}

// maxHosts bounds the engine's hosts file, which has a line for each entry.
const maxHosts = 1 << 20

// unmark takes the entry out of the hosts file again. The engine mounts the file
// into the pod's containers, so it stays the same one.
func unmark(path string) error {
	content, err := bounded.ReadRegular(path, maxHosts)
	if err != nil {
		return fmt.Errorf("the sandbox's hosts file: %w", err)
	}
	var rest bytes.Buffer
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(bytes.TrimSpace(line), []byte(hostsMark)) {
			rest.Write(line)
		}
	}
	if rest.Len() == len(content) {
		return fmt.Errorf("the sandbox's hosts file %s is not as the engine should have made it", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("the sandbox's hosts file: %w", err)
	}
	_, err = f.Write(rest.Bytes())
	return errors.Join(err, f.Truncate(int64(rest.Len())), f.Close())
}
