package containerd

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/crishim/crishim/imagefile"
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

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, errTest }
