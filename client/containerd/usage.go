package containerd

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Usage is the disk usage of containerd's images. A part is a blob of the content store or a snapshot.
type Usage struct {
	Sizes  []int64              // size of each part
	Images map[string][]int32   // image ids to indices of Sizes
	Came   map[string]time.Time // image ids to the time of the last pull or load
	Held   []int32              // indices of Sizes: the snapshots of containers and the layers below them
	Active map[string]string    // snapshots of containers to their snapshotters
}

// snapshotRef is the prefix of labels that refer to an unpacked layer. The snapshotter's name follows.
const snapshotRef = "containerd.io/gc.ref.snapshot."

// Usage finds the parts of each image by the labels that containerd's garbage collector uses. Sizes come from
// containerd's database, so that containerd does not walk directories.
func (s *Store) Usage(ctx context.Context) (*Usage, error) {
	ctx = in(ctx)
	g := &graph{indices: map[string]int32{}, refs: map[int32][]string{}, usage: &Usage{Images: map[string][]int32{}, Came: map[string]time.Time{}, Active: map[string]string{}}}
	named, err := s.images.List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	snapshotters, err := s.readContent(ctx, g)
	if err != nil {
		return nil, err
	}
	for _, name := range snapshotters {
		if err := s.readSnapshots(ctx, name, g); err != nil {
			return nil, err
		}
	}
	came := map[string]time.Time{}
	for _, image := range named.GetImages() {
		d := image.GetTarget().GetDigest()
		for _, t := range []time.Time{image.GetCreatedAt().AsTime(), image.GetUpdatedAt().AsTime()} {
			if t.After(came[d]) {
				came[d] = t
			}
		}
	}
	for _, image := range named.GetImages() {
		if d := image.GetTarget().GetDigest(); strings.HasPrefix(image.GetName(), "sha256:") {
			g.usage.Images[image.GetName()] = g.reach("content " + d)
			g.usage.Came[image.GetName()] = came[d]
		}
	}
	held := map[int32]bool{}
	for key, snapshotter := range g.usage.Active {
		for _, part := range g.reach("snapshot " + snapshotter + " " + key) {
			if !held[part] {
				held[part] = true
				g.usage.Held = append(g.usage.Held, part)
			}
		}
	}
	slices.Sort(g.usage.Held)
	return g.usage, nil
}

// graph holds parts by name and their references.
type graph struct {
	usage   *Usage
	indices map[string]int32
	refs    map[int32][]string
	mu      sync.Mutex // guards the sizes during concurrent requests
}

func (g *graph) add(name string, size int64, refs []string) int32 {
	index := int32(len(g.usage.Sizes)) //nolint:gosec // far below 2^31 elements fit into memory
	g.indices[name], g.refs[index] = index, refs
	g.usage.Sizes = append(g.usage.Sizes, size)
	return index
}

func (g *graph) reach(name string) []int32 {
	var found []int32
	seen := map[string]bool{}
	for names := []string{name}; len(names) > 0; {
		last := names[len(names)-1]
		names = names[:len(names)-1]
		index, known := g.indices[last]
		if seen[last] || !known {
			continue
		}
		seen[last] = true
		found = append(found, index)
		names = append(names, g.refs[index]...)
	}
	slices.Sort(found)
	return found
}

// readContent adds all content and returns the snapshotters in its labels.
func (s *Store) readContent(ctx context.Context, g *graph) ([]string, error) {
	list, err := s.content.List(ctx, &content.ListContentRequest{})
	if err != nil {
		return nil, err
	}
	// If the image of a container was removed, labels no longer name its snapshotter, which is usually the default.
	snapshotters := []string{"overlayfs"}
	return snapshotters, each(list.Recv, func(m *content.ListContentResponse) {
		for _, info := range m.GetInfo() {
			var refs []string
			for key, value := range info.GetLabels() {
				if strings.HasPrefix(key, strings.TrimSuffix(gcRef, ".")) {
					refs = append(refs, "content "+value)
				}
				if name, ok := strings.CutPrefix(key, snapshotRef); ok {
					name, _, _ = strings.Cut(name, "/")
					refs = append(refs, "snapshot "+name+" "+value)
					if !slices.Contains(snapshotters, name) {
						snapshotters = append(snapshotters, name)
					}
				}
			}
			g.add("content "+info.GetDigest(), info.GetSize(), refs)
		}
	})
}

// readSnapshots adds the snapshots of a snapshotter. It skips the sizes of containers' own snapshots, because
// containerd would walk their files.
func (s *Store) readSnapshots(ctx context.Context, name string, g *graph) error {
	list, err := s.snapshots.List(ctx, &snapshots.ListSnapshotsRequest{Snapshotter: name})
	if err != nil {
		return err
	}
	committed := map[int32]string{}
	err = each(list.Recv, func(m *snapshots.ListSnapshotsResponse) {
		for _, info := range m.GetInfo() {
			index := g.add("snapshot "+name+" "+info.GetName(), 0, []string{"snapshot " + name + " " + info.GetParent()})
			if info.GetKind() == snapshots.Kind_COMMITTED {
				committed[index] = info.GetName()
			} else {
				g.usage.Active[info.GetName()] = name
			}
		}
	})
	if code := status.Code(err); code == codes.InvalidArgument || code == codes.NotFound {
		return nil // no such snapshotter
	}
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	for index, key := range committed {
		work.Go(func() error {
			answer, err := s.snapshots.Usage(ctx, &snapshots.UsageRequest{Snapshotter: name, Key: key})
			if status.Code(err) == codes.NotFound { // removed in the meantime
				err = nil
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.usage.Sizes[index] = answer.GetSize()
			return err
		})
	}
	return work.Wait()
}

// Written returns the size of a container's own snapshot. containerd walks its files to find out.
func (s *Store) Written(ctx context.Context, id, snapshotter string) (int64, error) {
	answer, err := s.snapshots.Usage(in(ctx), &snapshots.UsageRequest{Snapshotter: cmp.Or(snapshotter, "overlayfs"), Key: id})
	return answer.GetSize(), err
}

func each[M any](recv func() (M, error), do func(M)) error {
	for {
		m, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		do(m)
	}
}

// LayerSizes returns the sizes of unpacked layers, -1 for a layer that is not unpacked.
func (s *Store) LayerSizes(ctx context.Context, snapshotter string, diffIDs []digest.Digest) []int64 {
	var sizes []int64
	for _, chain := range identity.ChainIDs(append([]digest.Digest(nil), diffIDs...)) {
		usage, err := s.snapshots.Usage(in(ctx), &snapshots.UsageRequest{Snapshotter: snapshotter, Key: chain.String()})
		if err != nil {
			sizes = append(sizes, -1)
			continue
		}
		sizes = append(sizes, usage.GetSize())
	}
	return sizes
}
