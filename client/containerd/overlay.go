package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/services/snapshots/v1"

	"github.com/crishim/crishim/internal/overlay"
)

// Overlay is a container's filesystem: the directories on this machine that overlayfs merges.
type Overlay struct {
	Upper  string   // files written by the container
	Lower  []string // layers of the image, topmost first
	Mounts []string // mount points in the container
}

// Overlay returns the directories of a container. info is the Info map of its verbose CRI status.
func (s *Store) Overlay(ctx context.Context, info map[string]string) (o Overlay, err error) {
	var of struct {
		Snapshotter, SnapshotKey string
		RuntimeSpec              struct {
			Mounts []struct{ Destination string }
		}
	}
	if err := json.Unmarshal([]byte(info["info"]), &of); err != nil || of.SnapshotKey == "" {
		return o, errors.New("containerd does not tell where the container's files are")
	}
	for _, m := range of.RuntimeSpec.Mounts {
		o.Mounts = append(o.Mounts, m.Destination)
	}
	answer, err := s.snapshots.Mounts(in(ctx), &snapshots.MountsRequest{Snapshotter: of.Snapshotter, Key: of.SnapshotKey})
	if err != nil {
		return o, err
	}
	for _, m := range answer.GetMounts() {
		for _, option := range m.GetOptions() {
			name, value, _ := strings.Cut(option, "=")
			switch name {
			case "upperdir":
				o.Upper = value
			case "lowerdir":
				o.Lower = strings.Split(value, ":")
			}
		}
	}
	if o.Upper == "" {
		return o, fmt.Errorf("the snapshotter %s keeps no directory of changes", of.Snapshotter)
	}
	for _, dir := range o.Lower {
		if !filepath.IsAbs(dir) {
			return o, fmt.Errorf("the layer %q of the snapshotter %s has no path", dir, of.Snapshotter)
		}
	}
	return o, nil
}

// Open opens a regular file of a stopped container. A path that does not exist returns fs.ErrNotExist. Paths at or
// below the container's mounts are refused, because their files are not in the directories.
func (o Overlay) Open(name string) (*os.File, error) {
	return overlay.Layers(append([]string{o.Upper}, o.Lower...)).Open(name, o.Mounts...)
}
