package containerd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/crishim/crishim/imagefile"
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

// TestFailedLoadLeavesNothingOnEngine: an archive that fails after a layer, and in the middle of one.
func TestFailedLoadLeavesNothingOnEngine(t *testing.T) {
	t.Parallel()
	s := connect(t)
	text := make([]byte, 3<<20)
	_, _ = rand.Read(text)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(text), Size: int64(len(text))}
	broken := io.MultiReader(bytes.NewReader(text[:2<<20]), &failing{})
	id := ""
	_, err := s.Load(t.Context(), func(sink imagefile.Sink) ([]imagefile.Image, error) {
		w, _ := sink.(*writer)
		id = w.id
		if err := w.Layer(imagefile.NewContent(d, bytes.NewReader(text))); err != nil {
			return nil, err
		}
		if there, err := s.has(w.ctx, d); err != nil || !there {
			t.Errorf("the layer is there: %v, %v", there, err)
		}
		// Another lease keeps what the first one held.
		w.since = w.since.Add(-renewTime)
		if err := w.renew(); err != nil {
			return nil, err
		}
		other := d
		other.Digest = digest.FromString("broken")
		return nil, w.Layer(imagefile.NewContent(other, broken))
	})
	if !errors.Is(err, errTest) {
		t.Errorf("got %v, want %v", err, errTest)
	}
	ctx := in(t.Context())
	if there, err := s.has(ctx, d); err != nil || there {
		t.Errorf("the layer is there: %v, %v", there, err)
	}
	list, err := s.leases.List(ctx, &leases.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list.GetLeases() {
		if strings.HasPrefix(l.GetID(), id) {
			t.Errorf("lease %s", l.GetID())
		}
	}
	active, err := s.content.ListStatuses(ctx, &content.ListStatusesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range active.GetStatuses() {
		if strings.Contains(a.GetRef(), id) {
			t.Errorf("unfinished content %s", a.GetRef())
		}
	}
}

// TestKilledLoadOnEngine: the next load removes what a killed one held, and nothing of one that goes on.
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
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(text), Size: int64(len(text))}
	id := leasePrefix + rand.Text()
	ctx := in(t.Context())
	if _, err := s.leases.Create(ctx, &leases.CreateRequest{ID: id, Labels: map[string]string{leaseOwner: owner.Mark()}}); err != nil {
		t.Fatal(err)
	}
	w := &writer{store: s, ctx: ctx, id: id, lease: id, since: time.Now(), held: map[string]bool{}}
	if err := w.Layer(imagefile.NewContent(d, bytes.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	load := func() {
		if _, err := s.Load(t.Context(), func(imagefile.Sink) ([]imagefile.Image, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
	}
	load()
	if there, err := s.has(ctx, d); err != nil || !there {
		t.Errorf("while the process lives its layer is there: %v, %v", there, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	load()
	if there, err := s.has(ctx, d); err != nil || there {
		t.Errorf("after its end the layer is there: %v, %v", there, err)
	}
}

// TestSlowLayerOnEngine: a lease that is about to expire while a layer is written is replaced, and what is written so
// far stays when containerd collects garbage.
func TestSlowLayerOnEngine(t *testing.T) {
	t.Parallel()
	s := connect(t)
	text := make([]byte, 3*writeSize)
	_, _ = rand.Read(text)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(text), Size: int64(len(text))}
	_, err := s.Load(t.Context(), func(sink imagefile.Sink) ([]imagefile.Image, error) {
		w, _ := sink.(*writer)
		last := ""
		expire := func() { last, w.since = w.lease, w.since.Add(-renewTime) }
		slow := &hooked{Reader: bytes.NewReader(text[writeSize:]), before: func() {
			expire()
			if err := w.renew(); err != nil {
				t.Error(err)
			}
			garbage := &leases.CreateRequest{ID: w.id + "-garbage"}
			if _, err := s.leases.Create(w.ctx, garbage); err != nil {
				t.Error(err)
			}
			if _, err := s.leases.Delete(w.ctx, &leases.DeleteRequest{ID: garbage.ID, Sync: true}); err != nil {
				t.Error(err)
			}
		}}
		late := &hooked{Reader: bytes.NewReader(nil), before: expire}
		if err := w.Layer(imagefile.NewContent(d, io.MultiReader(bytes.NewReader(text[:writeSize]), slow, late))); err != nil {
			return nil, err
		}
		if there, err := s.has(w.ctx, d); err != nil || !there || w.lease == last {
			t.Errorf("the layer is there: %v, %v; under another lease: %v", there, err, w.lease != last)
		}
		list, err := s.leases.List(w.ctx, &leases.ListRequest{})
		for _, l := range list.GetLeases() {
			if strings.HasPrefix(l.GetID(), w.id) && l.GetID() != w.lease {
				t.Errorf("another lease %s", l.GetID())
			}
		}
		return nil, err
	})
	if err != nil {
		t.Error(err)
	}
}

// hooked calls a function before it is read.
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

// TestUsageOnEngine: the image of the tests has content and is known by its id.
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
	documents := imagefile.Documents{}
	found, err := s.find(in(t.Context()), name, imagefile.AnyPlatform, documents)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, part := range usage.Images[found.ID()] {
		size += usage.Sizes[part]
	}
	want := image.GetImage().GetTarget().GetSize() + found.Manifests[0].Config.Size + found.Manifests[0].Layers[0].Size
	if size < want || usage.Came[found.ID()].IsZero() || usage.Came[found.ID()].After(time.Now().Add(time.Hour)) {
		t.Errorf("got %d bytes, since %v; want %d and more", size, usage.Came[found.ID()], want)
	}
}

// TestSaveOnePlatformOnEngine: what takes one platform of an image gets no layers of others.
func TestSaveOnePlatformOnEngine(t *testing.T) {
	t.Parallel()
	s := connect(t)
	name := "example.com/" + strings.ToLower(rand.Text()) + ":1"
	ctx := in(t.Context())
	documents, index := imagefile.Documents{}, ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	var layers [][]byte
	add := func(mediaType string, v any) ocispec.Descriptor {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return documents.Add(mediaType, text)
	}
	for _, platform := range []ocispec.Platform{{OS: "linux", Architecture: "mips"}, {OS: "linux", Architecture: runtime.GOARCH}} {
		layer := []byte(name + platform.Architecture)
		layers = append(layers, layer)
		d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(layer), Size: int64(len(layer))}
		config := ocispec.Image{Platform: platform, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{d.Digest}}}
		manifest := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: add(ocispec.MediaTypeImageConfig, config), Layers: []ocispec.Descriptor{d}}
		index.Manifests = append(index.Manifests, add(ocispec.MediaTypeImageManifest, manifest))
	}
	image := imagefile.Image{Names: []string{name}, Target: add(ocispec.MediaTypeImageIndex, index)}
	read := func(d ocispec.Descriptor) ([]byte, error) { return documents[d.Digest], nil }
	var err error
	if image.Manifests, err = imagefile.Complete(image.Target, imagefile.AnyPlatform, read, func(ocispec.Descriptor) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), func(sink imagefile.Sink) ([]imagefile.Image, error) {
		for i, layer := range layers {
			if err := sink.Layer(imagefile.NewContent(image.Manifests[i].Layers[0], bytes.NewReader(layer))); err != nil {
				return nil, err
			}
		}
		return nil, sink.Finish([]imagefile.Image{image}, documents)
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, ref := range []string{name, image.ID(), strings.TrimSuffix(name, ":1") + "@" + image.Target.Digest.String()} {
			_, _ = s.images.Delete(context.WithoutCancel(ctx), &images.DeleteImageRequest{Name: ref})
		}
	})
	for one, want := range map[bool]string{true: string(layers[1]), false: string(layers[0]) + string(layers[1])} {
		out := &recorder{}
		if _, err := s.Save(t.Context(), []string{name}, imagefile.AnyPlatform, one, out); err != nil || out.text != want {
			t.Errorf("one %v: got %q, %v; want %q", one, out.text, err, want)
		}
	}
}

// recorder is a Sink that keeps what is in layers.
type recorder struct{ text string }

func (r *recorder) Layer(c *imagefile.Content) error {
	text, err := io.ReadAll(c)
	r.text += string(text)
	return err
}

func (*recorder) Finish([]imagefile.Image, imagefile.Documents) error { return nil }

// TestReach follows references once, and none that leads nowhere.
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
