package imagefile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// copySize is how much is copied at once.
const copySize = 256 << 10

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// maxRatio is how many times its size something may unpack to, beyond the first GiB. What deflate can
// reach is 1032; file systems of zeros come near it only in what is made to fill disks.
const maxRatio = 500

// decompress returns what a stream unpacks to; end releases its memory.
func decompress(from io.Reader, ratio int64) (plain io.Reader, end func(), err error) {
	packed := &counter{r: from}
	in := bufio.NewReaderSize(packed, copySize)
	start, err := in.Peek(4)
	if err != nil && (!errors.Is(err, io.EOF) || len(start) == 0) {
		if errors.Is(err, io.EOF) {
			err = errors.New("the archive is empty")
		}
		return nil, nil, err
	}
	end = func() {}
	switch {
	case bytes.HasPrefix(start, gzipMagic):
		plain, err = gzip.NewReader(in)
	case bytes.HasPrefix(start, zstdMagic):
		var z *zstd.Decoder
		if z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20)); err == nil {
			plain, end = z, z.Close
		}
	default:
		return in, end, nil
	}
	return &ratioLimit{r: plain, packed: packed, ratio: ratio}, end, err
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// ratioLimit ends what would fill any disk.
type ratioLimit struct {
	r      io.Reader
	packed *counter
	n      int64
	ratio  int64
}

func (b *ratioLimit) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > 1<<30 && (b.n-1<<30)/b.ratio > b.packed.n {
		return n, fmt.Errorf("it unpacks to more than %d times its size", b.ratio)
	}
	return n, err
}

// verifier hashes a layer on its way, and what it unpacks to.
type verifier struct {
	c    *Content
	r    io.Reader
	hash digest.Digester
	n    int64
	err  error // that ended reading

	pipe *io.PipeWriter // to what unpacks; nil: nothing does
	done chan struct{}  // closed when it has ended
	diff digest.Digest
	bad  error
}

func newVerifier(c *Content, r io.Reader, unpack bool) *verifier {
	v := &verifier{c: c, r: r, hash: digest.SHA256.Digester()}
	if !unpack {
		return v
	}
	out, in := io.Pipe()
	v.pipe, v.done = in, make(chan struct{})
	go func() {
		defer close(v.done)
		v.diff, v.bad = diffID(out)
		out.CloseWithError(v.bad) // nil: writes fail with ErrClosedPipe
	}()
	return v
}

func diffID(r io.Reader) (digest.Digest, error) {
	plain, end, err := decompress(r, maxRatio)
	if err != nil {
		return "", err
	}
	defer end()
	hash := digest.SHA256.Digester()
	if _, err := io.CopyBuffer(hash.Hash(), struct{ io.Reader }{plain}, make([]byte, copySize)); err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, r)
	return hash.Digest(), err
}

func (v *verifier) Read(b []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.r.Read(b)
	v.n += int64(n)
	v.hash.Hash().Write(b[:n])
	if v.pipe != nil && n > 0 {
		if _, werr := v.pipe.Write(b[:n]); werr != nil {
			err = werr
		}
	}
	if errors.Is(err, io.EOF) {
		err = v.check()
	}
	v.err = err
	return n, err
}

// check returns the end of the layer: io.EOF where it is what it should be.
func (v *verifier) check() error {
	got := v.hash.Digest()
	switch {
	case v.n != v.c.Size:
		return fmt.Errorf("%d bytes, and there should be %d: %w", v.n, v.c.Size, io.ErrUnexpectedEOF)
	case v.c.Digest != "" && got != v.c.Digest:
		return fmt.Errorf("the content has the digest %s", got)
	}
	v.c.Digest = got
	return io.EOF
}

// NewContent returns a layer or a document that is checked on its way.
func NewContent(d ocispec.Descriptor, r io.Reader) *Content {
	c := &Content{Descriptor: d}
	c.Reader = newVerifier(c, r, false)
	return c
}

// ReadDocument reads an index, a manifest or a configuration.
func ReadDocument(d ocispec.Descriptor, r io.Reader) ([]byte, error) {
	if d.Size > maxDocument {
		return nil, fmt.Errorf("%s of %d bytes is no manifest or configuration", d.Digest, d.Size)
	}
	return io.ReadAll(NewContent(d, io.LimitReader(r, d.Size+1)))
}

// unpacked returns the digest of what the layer unpacks to, after its end.
func (v *verifier) unpacked() (digest.Digest, error) {
	if v.pipe == nil {
		if v.c.MediaType == ocispec.MediaTypeImageLayer {
			return v.c.Digest, nil
		}
		return "", nil
	}
	v.end()
	return v.diff, v.bad
}

func (v *verifier) end() {
	if v.pipe != nil {
		v.pipe.Close()
		<-v.done
	}
}
