package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

// limits are those that the engine has no field for, in a label.
type limits struct {
	Files     map[string]string           `json:"files"` // in the container's cgroup
	Hugepages []*runtimeapi.HugepageLimit `json:"hugepages,omitempty"`
	Unified   map[string]string           `json:"unified,omitempty"`
}

// notedLimits reads the label. A damaged one is an error only where it counts,
// at the start.
func notedLimits(labels map[string]string) (l limits, err error) {
	text, ok := labels[state.LabelOwnLimits]
	if !ok {
		return l, nil
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("label %s: %w", state.LabelOwnLimits, err)
	}
	return l, nil
}

// resources is what the label says as a CRI message.
func (l limits) resources() *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{HugepageLimits: l.Hugepages, Unified: l.Unified}
}

// applyLimits writes the noted limits into the cgroup of a container that has
// just been started. That needs the engine's host.
func (s *Service) applyLimits(ctx context.Context, m member) error {
	l, err := notedLimits(m.c.Config.Labels)
	if err != nil || len(l.Files) == 0 {
		return err
	}
	c, err := s.engine.ContainerInspect(ctx, m.c.ID)
	if err != nil || c.State == nil || !c.State.Running {
		return err // it has ended; there is nothing to limit
	}
	cgroups, err := host.Cgroups(c.State.Pid, c.ID)
	if err == nil {
		err = writeLimits(cgroups, l.Files)
	} else {
		err = fmt.Errorf("the limits %v need the engine's host: %w", names(l.Files), err)
	}
	asked := false
	for name, value := range l.Files {
		asked = asked || !noHugePages(name, value)
	}
	if err == nil || !asked {
		return nil
	}
	// Its process and its cgroup go as soon as it ends, which may be by now.
	if c, again := s.engine.ContainerInspect(ctx, m.c.ID); again == nil && (c.State == nil || !c.State.Running) {
		return nil
	}
	return err
}

func writeLimits(cgroups host.CgroupDirs, files map[string]string) error {
	var errs []error
	for name, value := range files {
		dir, err := cgroups.Of(name)
		if err == nil {
			err = writeExisting(filepath.Join(dir, name), value)
		}
		if err != nil && !noHugePages(name, value) {
			errs = append(errs, fmt.Errorf("limit %s=%q: %w", name, value, err))
		}
	}
	return errors.Join(errs...)
}

// noHugePages: a kubelet limits every size of huge pages that the kernel knows
// to 0 for a container that asked for none, also on a host without the
// controller, and so does sync for a user who may not write cgroups. What
// nobody asked for is no reason to end the container.
func noHugePages(name, value string) bool { return strings.HasPrefix(name, "hugetlb.") && value == "0" }

// writeExisting never creates: a control that the kernel lacks is an error.
func writeExisting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func names(files map[string]string) []string {
	var out []string
	for name := range files {
		out = append(out, name)
	}
	return out
}
