package imagefile

import (
	"io"
	"strings"
	"testing"
)

// A stream with an extreme compression ratio is not read to its end. The limit applies after the first GiB.
func TestBomb(t *testing.T) {
	t.Parallel()
	b := &ratioLimit{r: zeros{}, packed: &counter{n: 1000}, n: 1 << 30}
	n, err := io.Copy(io.Discard, b)
	if err == nil || !strings.Contains(err.Error(), "unpacks to more than 500 times its size") || n > 1<<20 {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
