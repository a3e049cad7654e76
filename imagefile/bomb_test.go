package imagefile

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// A stream that unpacks to much more than it has is not read to its end. The first GiB of it is anybody's.
func TestBomb(t *testing.T) {
	t.Parallel()
	b := &ratioLimit{r: zeros{}, packed: &counter{n: 1000}, n: 1 << 30, ratio: maxRatio}
	n, err := io.Copy(io.Discard, b)
	if err == nil || !strings.Contains(err.Error(), "unpacks to more than 500 times its size") || n > 1<<20 {
		t.Errorf("got %d bytes, %v", n, err)
	}
	a := &archive{files: map[string]file{}, documents: Documents{}}
	for range 100 {
		if err = a.document("x", "", io.LimitReader(zeros{}, maxDocument), maxDocument); err != nil {
			break
		}
	}
	if err == nil || errors.Is(err, io.EOF) || len(a.documents) > maxDocuments/maxDocument {
		t.Errorf("documents have no limit: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// A header that is written after its content has the room of the one that was left for it.
func TestHeaderOf(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, maxUSTAR, maxUSTAR + 1, 1 << 40} {
		var b bytes.Buffer
		if err := tar.NewWriter(&b).WriteHeader(headerOf("blobs/sha256/"+digest.FromString("").Encoded(), size)); err != nil || b.Len() != 512 {
			t.Errorf("%d: %d bytes, %v", size, b.Len(), err)
		}
	}
}
