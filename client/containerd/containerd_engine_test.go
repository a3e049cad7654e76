package containerd

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/crishim/crishim/internal/imagefile"
	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/internal/test/enginetest"
)

func connect(t *testing.T) *Store {
	t.Helper()
	endpoint := enginetest.Containerd(t)
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, ok := Open(t.Context(), conn)
	if !ok {
		t.Fatalf("%s is no containerd", endpoint)
	}
	return s
}

var errTest = errors.New("the archive has a fault")

// TestFailedLoadLeavesNothingOnEngine loads archives that fail after a layer and within a layer.
func TestFailedLoadLeavesNothingOnEngine(t *testing.T) {
	t.Parallel()
	s := connect(t)
	text := make([]byte, 3<<20)
	_, _ = rand.Read(text)
	d := layerOf(text)
	w, err := s.newWriter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.write(d, opening(bytes.NewReader(text)), nil); err != nil {
		t.Fatal(err)
	}
	if there, err := has(w.ctx, s, d); err != nil || !there {
		t.Errorf("the layer is there: %v, %v", there, err)
	}
	other := d
	other.Digest = hash([]byte("broken"))
	err = w.end(w.write(other, opening(io.MultiReader(bytes.NewReader(text[:2<<20]), &failing{})), nil))
	if !errors.Is(err, errTest) {
		t.Errorf("got %v, want %v", err, errTest)
	}
	ctx := in(t.Context())
	if there, err := has(ctx, s, d); err != nil || there {
		t.Errorf("the layer is there: %v, %v", there, err)
	}
	list, err := s.leases.List(ctx, &leases.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list.GetLeases() {
		if l.GetID() == w.lease {
			t.Errorf("lease %s", l.GetID())
		}
	}
	active, err := s.content.ListStatuses(ctx, &content.ListStatusesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range active.GetStatuses() {
		if strings.Contains(a.GetRef(), w.lease) {
			t.Errorf("unfinished content %s", a.GetRef())
		}
	}
}

// TestKilledLoadOnEngine checks that a load removes the leases of killed loads but not those of running ones.
func TestKilledLoadOnEngine(t *testing.T) {
	t.Parallel()
	s := connect(t)
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	owner, err := proctree.Find(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 1<<20)
	_, _ = rand.Read(text)
	d := layerOf(text)
	w, err := s.newWriter(t.Context(), owner.Mark())
	if err != nil {
		t.Fatal(err)
	}
	ctx := in(t.Context())
	if err := w.write(d, opening(bytes.NewReader(text)), nil); err != nil {
		t.Fatal(err)
	}
	load := func() {
		if err := s.Load(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	load()
	if there, err := has(ctx, s, d); err != nil || !there {
		t.Errorf("while the process lives its layer is there: %v, %v", there, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	load()
	if there, err := has(ctx, s, d); err != nil || there {
		t.Errorf("after its end the layer is there: %v, %v", there, err)
	}
}

// TestSlowLayerOnEngine checks that garbage collection keeps partly written and existing layers of a running load.
func TestSlowLayerOnEngine(t *testing.T) {
	t.Parallel()
	s := connect(t)
	text := make([]byte, 3*writeSize)
	_, _ = rand.Read(text)
	first, err := s.newWriter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	there, slow := layerOf(text[:writeSize]), layerOf(text)
	if err := first.write(there, opening(bytes.NewReader(text)), nil); err != nil {
		t.Fatal(err)
	}
	w, err := s.newWriter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.write(there, nil, nil); err != nil {
		t.Error(err)
	}
	collect := func() { // a failing load does the same at its end
		if err := first.end(errTest); !errors.Is(err, errTest) {
			t.Error(err)
		}
	}
	err = w.write(slow, opening(io.MultiReader(bytes.NewReader(text[:writeSize]), &hooked{Reader: bytes.NewReader(text[writeSize:]), before: collect})), nil)
	for _, d := range []v1.Descriptor{there, slow} {
		if there, err := has(w.ctx, s, d); err != nil || !there {
			t.Errorf("layer of %d bytes: %v, %v", d.Size, there, err)
		}
	}
	if err := w.end(err); err != nil {
		t.Error(err)
	}
}

func layerOf(text []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: hash(text), Size: int64(len(text))}
}

func hash(text []byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(text))}
}

func opening(r io.Reader) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(r), nil }
}

func has(ctx context.Context, s *Store, d v1.Descriptor) (bool, error) {
	_, err := reader{s, ctx}.Size(d.Digest)
	if errors.Is(err, imagefile.ErrMissing) {
		return false, nil
	}
	return err == nil, err
}

// hooked calls before ahead of the first read.
type hooked struct {
	io.Reader
	before func()
}

func (h *hooked) Read(b []byte) (int, error) {
	if h.before != nil {
		h.before()
		h.before = nil
	}
	return h.Reader.Read(b)
}

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, errTest }

// TestUsageOnEngine checks that the test image is listed under its id and has content.
func TestUsageOnEngine(t *testing.T) {
	t.Parallel()
	s := connect(t)
	name := "docker.io/library/" + os.Getenv("CRISHIM_TEST_IMAGE")
	image, err := s.images.Get(in(t.Context()), &images.GetImageRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	usage, err := s.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.Images(t.Context(), []string{name}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := list[0]
	size := int64(0)
	for _, part := range usage.Images[found.ID()] {
		size += usage.Sizes[part]
	}
	want := image.GetImage().GetTarget().GetSize() + found.Manifests[0].Config.Size + found.Manifests[0].Layers[0].Size
	if size < want || usage.Came[found.ID()].IsZero() || usage.Came[found.ID()].After(time.Now().Add(time.Hour)) {
		t.Errorf("got %d bytes, since %v; want %d and more", size, usage.Came[found.ID()], want)
	}
}

// TestReach checks that shared references are followed once and dangling references are ignored.
func TestReach(t *testing.T) {
	t.Parallel()
	g := &graph{usage: &Usage{}, indices: map[string]int32{}, refs: map[int32][]string{}}
	g.add("a", 1, []string{"b", "missing"})
	g.add("b", 2, []string{"a", "c"})
	g.add("c", 4, nil)
	g.add("other", 8, nil)
	if got := g.reach("a"); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("got %v", got)
	}
}
