package kuberuntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// idsPerPod is the number of ids of a user namespace, as in the kubelet. The first idsPerPod ids belong to the host.
const (
	idsPerPod = 1 << 16
	maxRanges = 1 << 16
)

// idRanges is the content of the file userns in a pod's directory, in the kubelet's format.
type idRanges struct {
	UIDs []idRange `json:"uidMappings"`
	GIDs []idRange `json:"gidMappings"`
}

type idRange struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// userNamespace returns the user namespace of a pod with hostUsers: false, and nil for other pods, like the kubelet's
// GetOrCreateUserNamespaceMappings. The pod's directory records the ids. Removing the directory frees them.
func (m *Manager) userNamespace(ctx context.Context, p *v1.Pod) (*runtimeapi.UserNamespace, error) {
	if ptr.Deref(p.Spec.HostUsers, true) {
		return nil, nil
	}
	first, err := m.firstID(string(p.UID))
	if errors.Is(err, fs.ErrNotExist) {
		first, err = m.takeIDs(ctx, string(p.UID))
	}
	if err != nil {
		return nil, fmt.Errorf("ids for the pod's user namespace: %w", err)
	}
	ids := []*runtimeapi.IDMapping{{HostId: first, Length: idsPerPod}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}

func (m *Manager) userNamespaceFile(uid string) string {
	return filepath.Join(m.o.Dirs.Pod(uid), "userns")
}

// firstID returns the first id of a pod's recorded range.
func (m *Manager) firstID(uid string) (uint32, error) {
	path := m.userNamespaceFile(uid)
	text, _, err := readFile(path)
	if err != nil {
		return 0, err
	}
	var ranges idRanges
	err = json.Unmarshal(text, &ranges)
	if err == nil && (len(ranges.UIDs) != 1 || ranges.UIDs[0].HostID < idsPerPod || ranges.UIDs[0].HostID%idsPerPod != 0) {
		err = errors.New("it has no range of ids")
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return ranges.UIDs[0].HostID, nil
}

// takeIDs allocates the first free range of this host to a pod and records it. An unreadable file is an error, because
// its pod may use any range.
func (m *Manager) takeIDs(ctx context.Context, uid string) (first uint32, err error) {
	release, err := m.lock(ctx, "user namespaces", nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, release()) }()
	pods, err := listDir(m.o.Dirs.Pods())
	if err != nil {
		return 0, err
	}
	taken := map[uint32]bool{}
	for _, other := range pods {
		id, err := m.firstID(other)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		taken[id] = true
	}
	for n := uint32(1); n < maxRanges; n++ {
		if first = n * idsPerPod; taken[first] {
			continue
		}
		ids := []idRange{{HostID: first, Length: idsPerPod}}
		text, err := json.Marshal(idRanges{UIDs: ids, GIDs: ids})
		if err != nil {
			return 0, err
		}
		return first, replaceFile(m.userNamespaceFile(uid), text)
	}
	return 0, errors.New("all are taken")
}

// mapIDs sets the user namespace of a container. It also sets id mappings of the mounts, so that files keep their
// owners inside the namespace.
func mapIDs(c *runtimeapi.ContainerConfig, of *runtimeapi.UserNamespace) {
	if of == nil {
		return
	}
	c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = of
	for _, mount := range c.GetMounts() {
		mount.UidMappings, mount.GidMappings = of.GetUids(), of.GetGids()
	}
}
