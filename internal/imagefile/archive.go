package imagefile

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/imageref"
)

// Options say which images Open takes from an archive.
type Options struct {
	Platform *v1.Platform // nil: all platforms
	As       string       // replaces the names of the archive's only image
	Trusted  bool         // the archive comes from an engine, so DiffIDs of layers are not verified
	Watch    Watch        // may be nil
}

type Archive struct {
	Images []Image

	spool   *os.File // nil if the caller's file is read in place
	files   map[string]*io.SectionReader
	links   map[string]string // hard and symbolic links: old versions of docker save each layer once
	blobs   map[v1.Hash]*io.SectionReader
	digests map[*io.SectionReader]v1.Hash
}

// Limits of an archive. An archive with a thousand images stays below them.
const (
	maxEntries = 200_000
	maxName    = 4096
	maxNames   = 32 << 20
)

// Open finds and verifies the images of an archive, which may be compressed with gzip or zstd. A stream or a compressed
// file is first copied, uncompressed, to an unnamed file.
func Open(ctx context.Context, from io.Reader, o Options) (a *Archive, err error) {
	a = &Archive{files: map[string]*io.SectionReader{}, links: map[string]string{}, blobs: map[v1.Hash]*io.SectionReader{}, digests: map[*io.SectionReader]v1.Hash{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if err := a.read(ctx, from); err != nil {
		return a, err
	}
	finder := NewFinder(a, o.Platform, o.Watch)
	if index, ok := a.lookup("index.json"); ok {
		err = a.readIndex(index, finder)
	} else if list, ok := a.lookup("manifest.json"); ok {
		err = a.readDockerList(list, finder)
	} else {
		err = errors.New("this is no archive of images: it has neither index.json nor manifest.json")
	}
	switch {
	case err != nil:
		return a, err
	case len(a.Images) == 0:
		return a, errors.New("the archive has no images")
	case o.As != "" && len(a.Images) > 1:
		return a, fmt.Errorf("the archive has %d images, and one name is for one image", len(a.Images))
	case o.As != "":
		a.Images[0].Names = []string{o.As}
	}
	if o.Trusted {
		return a, nil
	}
	return a, a.check(ctx)
}

func (a *Archive) Close() error {
	if a.spool == nil {
		return nil
	}
	return a.spool.Close()
}

func (a *Archive) Size(h v1.Hash) (int64, error) {
	if blob, ok := a.blob(h); ok {
		return blob.Size(), nil
	}
	return 0, ErrMissing
}

func (a *Archive) Open(h v1.Hash) (io.ReadCloser, error) {
	blob, ok := a.blob(h)
	if !ok {
		return nil, ErrMissing
	}
	return io.NopCloser(io.NewSectionReader(blob, 0, blob.Size())), nil
}

func (a *Archive) blob(h v1.Hash) (*io.SectionReader, bool) {
	if blob, ok := a.blobs[h]; ok {
		return blob, true
	}
	return a.lookup("blobs/" + h.Algorithm + "/" + h.Hex)
}

func (a *Archive) lookup(name string) (*io.SectionReader, bool) {
	name = path.Clean(name)
	for range 8 {
		if f, ok := a.files[name]; ok {
			return f, true
		}
		name = a.links[name]
	}
	return nil, false
}

func (a *Archive) read(ctx context.Context, from io.Reader) error {
	if f, ok := from.(*os.File); ok {
		file, err := plainFile(f)
		if err != nil {
			return err
		}
		if file != nil {
			return a.scan(tar.NewReader(file), file, func() (int64, error) { return file.Seek(0, io.SeekCurrent) })
		}
	}
	plain, _, end, err := decompress(cancelled{ctx, from})
	if err != nil {
		return truncated(err)
	}
	defer end()
	if a.spool, err = tempFile(); err != nil {
		return err
	}
	out := bufio.NewWriterSize(&bounded.DiskWriter{File: a.spool}, copySize)
	in := &counter{r: io.TeeReader(plain, out)}
	if err := a.scan(tar.NewReader(in), a.spool, func() (int64, error) { return in.n, nil }); err != nil {
		return err
	}
	if in.n == 0 {
		return errors.New("the archive is empty")
	}
	if _, err := io.Copy(io.Discard, plain); err != nil { // verifies the checksum at the end of the compressed data
		return fmt.Errorf("after the last entry: %w", truncated(err))
	}
	return out.Flush()
}

// plainFile returns the rest of an uncompressed regular file, or nil for any other input.
func plainFile(f *os.File) (*io.SectionReader, error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	section := io.NewSectionReader(f, at, info.Size()-at)
	if kind, err := sniff(section); err != nil || kind != "" || section.Size() == 0 {
		return nil, err
	}
	return section, nil
}

func (a *Archive) scan(r *tar.Reader, file io.ReaderAt, at func() (int64, error)) error {
	entries := bounded.Budget{Left: maxEntries, Of: fmt.Sprintf("%d entries", maxEntries)}
	names := bounded.Budget{Left: maxNames, Of: fmt.Sprintf("%d MiB of names", maxNames>>20)}
	for last := "the beginning"; ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, tar.ErrHeader) && len(a.files)+len(a.links) == 0 {
			return errors.New("this is no tar archive")
		}
		if err != nil {
			return fmt.Errorf("after %s: %w", last, truncated(err))
		}
		if len(h.Name) > maxName || len(h.Linkname) > maxName {
			return fmt.Errorf("after %s: a name of more than %d bytes", last, maxName)
		}
		last = fmt.Sprintf("entry %q", h.Name)
		start, err := at()
		if err := errors.Join(err, entries.Take(1), names.Take(int64(len(h.Name)+len(h.Linkname)))); err != nil {
			return fmt.Errorf("%s: %w", last, err)
		}
		if err := a.add(h, io.NewSectionReader(file, start, h.Size)); err != nil {
			return fmt.Errorf("%s: %w", last, err)
		}
	}
}

// add records the position of an entry. Names are only compared, never opened, so they need no check for "..".
func (a *Archive) add(h *tar.Header, content *io.SectionReader) error {
	name := path.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return nil
	case tar.TypeSymlink:
		a.links[name] = path.Join(path.Dir(name), h.Linkname)
		return nil
	case tar.TypeLink:
		a.links[name] = path.Clean(h.Linkname)
		return nil
	case tar.TypeReg:
	default:
		return fmt.Errorf("type %q is no file's", h.Typeflag)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") { // a few bytes can expand to any number of zeros
			return errors.New("it is a sparse file")
		}
	}
	if _, twice := a.files[name]; twice {
		return errors.New("a second entry of this name")
	}
	a.files[name] = content
	return nil
}

func truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the archive is truncated")
	}
	return err
}

// annotationName is the annotation of containerd and docker for the full name of an image.
const annotationName = "io.containerd.image.name"

func (a *Archive) readIndex(file *io.SectionReader, finder *Finder) error {
	d, err := a.describe(file, types.OCIImageIndex)
	if err != nil {
		return fmt.Errorf("index.json: %w", err)
	}
	var index v1.IndexManifest
	if _, err := finder.document(d, &index); err != nil {
		return fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) > maxImages {
		return fmt.Errorf("index.json: more than %d images", maxImages)
	}
	for _, d := range index.Manifests {
		if attestation(d) {
			continue
		}
		image, err := finder.Find(d)
		if err != nil {
			return fmt.Errorf("index.json: %w", err)
		}
		name, err := ociName(d.Annotations)
		if err != nil {
			return fmt.Errorf("index.json: %w", err)
		}
		if name != "" {
			image.Names = []string{name}
		}
		a.Images = Add(a.Images, image)
	}
	return nil
}

// ociName returns the name of an image in index.json. The standard annotation may contain only a tag.
func ociName(annotations map[string]string) (string, error) {
	text := annotations[annotationName]
	if ref := annotations[annotationRef]; text == "" && strings.ContainsAny(ref, "/:") {
		text = ref
	}
	// containerd also records digests as names: NAME@sha256:... and sha256:...
	if _, err := v1.NewHash(text[strings.LastIndex(text, "@")+1:]); text == "" || err == nil {
		return "", nil
	}
	name, err := imageref.Full(text)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", text, err)
	}
	return name, nil
}

type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// readDockerList finds the images of a docker save archive and generates their manifests, which the archive lacks.
func (a *Archive) readDockerList(file *io.SectionReader, finder *Finder) error {
	d, err := a.describe(file, types.DockerConfigJSON)
	if err != nil {
		return fmt.Errorf("manifest.json: %w", err)
	}
	var list []dockerImage
	if _, err := finder.document(d, &list); err != nil {
		return fmt.Errorf("manifest.json: %w", err)
	}
	if len(list) > maxImages {
		return fmt.Errorf("manifest.json: more than %d images", maxImages)
	}
	for _, entry := range list {
		image, err := a.dockerImage(entry, finder)
		if err != nil {
			return fmt.Errorf("manifest.json: %w", err)
		}
		a.Images = Add(a.Images, image)
	}
	return nil
}

func (a *Archive) dockerImage(entry dockerImage, finder *Finder) (image Image, err error) {
	file, ok := a.lookup(entry.Config)
	if !ok {
		return image, fmt.Errorf("the configuration %q %w", entry.Config, ErrMissing)
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: []v1.Descriptor{}}
	if m.Config, err = a.describe(file, types.OCIConfigJSON); err != nil {
		return image, err
	}
	var config struct{ RootFS v1.RootFS }
	if _, err := finder.document(m.Config, &config); err != nil {
		return image, err
	}
	if n := len(config.RootFS.DiffIDs); n != len(entry.Layers) {
		return image, fmt.Errorf("%d layers, and the configuration %q has %d", len(entry.Layers), entry.Config, n)
	}
	for i, name := range entry.Layers {
		file, ok := a.lookup(name)
		if !ok {
			return image, fmt.Errorf("the layer %q %w", name, ErrMissing)
		}
		kind, err := sniff(file)
		if err != nil {
			return image, err
		}
		d := v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: config.RootFS.DiffIDs[i], Size: file.Size()}
		switch {
		case kind == gzipped:
			d, err = a.describe(file, types.OCILayer)
		case kind == zstded:
			d, err = a.describe(file, types.OCILayerZStd)
		case a.blobs[d.Digest] == nil:
			// The configuration may contain a wrong digest. The reader of Layer.Open verifies it, and so does
			// Archive.check for all layers, unless Options.Trusted is set.
			a.blobs[d.Digest] = file
		}
		if err != nil {
			return image, err
		}
		m.Layers = append(m.Layers, d)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return image, err
	}
	d, err := a.describe(io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text))), m.MediaType)
	if err != nil {
		return image, err
	}
	if image, err = finder.Find(d); err != nil {
		return image, err
	}
	for _, tag := range entry.RepoTags {
		name, err := imageref.Full(tag)
		if err != nil {
			return image, fmt.Errorf("image name %q: %w", tag, err)
		}
		image.Names = append(image.Names, name)
	}
	return image, nil
}

func (a *Archive) describe(file *io.SectionReader, mediaType types.MediaType) (v1.Descriptor, error) {
	h, known := a.digests[file]
	if !known {
		var err error
		if h, _, err = v1.SHA256(io.NewSectionReader(file, 0, file.Size())); err != nil {
			return v1.Descriptor{}, truncated(err)
		}
		a.digests[file], a.blobs[h] = h, file
	}
	return v1.Descriptor{MediaType: mediaType, Digest: h, Size: file.Size()}, nil
}

func (a *Archive) check(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	type pair struct{ packed, plain v1.Hash }
	done := map[pair]bool{}
	for _, image := range a.Images {
		for _, m := range image.Manifests {
			for _, l := range m.Layers {
				if p := (pair{l.Digest, l.DiffID}); !done[p] {
					done[p] = true
					group.Go(func() error { return l.check(ctx) })
				}
			}
		}
	}
	return group.Wait()
}

func (l Layer) check(ctx context.Context) error {
	content, err := l.finder.store.Open(l.Digest)
	if err != nil {
		return err
	}
	defer content.Close()
	in := checked(cancelled{ctx, content}, l.Descriptor)
	plain, kind, end, err := decompress(in)
	if err != nil {
		return fmt.Errorf("layer %s: %w", l.Digest, err)
	}
	defer end()
	got := l.Digest
	if kind == "" {
		_, err = io.Copy(io.Discard, plain)
	} else if got, _, err = v1.SHA256(plain); err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	if err == nil && got != l.DiffID {
		err = fmt.Errorf("it unpacks to %s, and the configuration has %s", got, l.DiffID)
	}
	if err != nil {
		err = fmt.Errorf("layer %s: %w", l.Digest, err)
	}
	return err
}

const copySize = 256 << 10

const gzipped, zstded = "gzip", "zstd"

func sniff(file io.ReaderAt) (string, error) {
	start := make([]byte, 6)
	n, err := file.ReadAt(start, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return compression(start[:n]), err
}

func compression(start []byte) string {
	for magic, kind := range map[string]string{"\x1f\x8b": gzipped, "\x28\xb5\x2f\xfd": zstded, "\xfd7zXZ\x00": "xz", "BZh": "bzip2"} {
		if bytes.HasPrefix(start, []byte(magic)) {
			return kind
		}
	}
	return ""
}

// maxRatio limits the compression ratio after the first GiB. Deflate reaches 1032, but only for data made to fill
// disks.
const maxRatio = 500

func decompress(from io.Reader) (plain io.Reader, kind string, end func(), err error) {
	packed := &counter{r: from}
	in := bufio.NewReaderSize(packed, copySize)
	start, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", nil, err
	}
	kind, end = compression(start), func() {}
	switch kind {
	case "":
		return in, kind, end, nil
	case gzipped:
		plain, err = gzip.NewReader(in)
	case zstded:
		var z *zstd.Decoder
		if z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20)); err == nil {
			plain, end = z, z.Close
		}
	default:
		err = fmt.Errorf("it is compressed by %s, and must be plain or compressed by gzip or zstd", kind)
	}
	return &ratioLimit{r: plain, packed: packed}, kind, end, err
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

type ratioLimit struct {
	r      io.Reader
	packed *counter
	n      int64
}

func (b *ratioLimit) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > 1<<30 && (b.n-1<<30)/maxRatio > b.packed.n {
		return n, fmt.Errorf("it unpacks to more than %d times its size", maxRatio)
	}
	return n, err
}

type cancelled struct {
	ctx context.Context //nolint:containedctx // Read has no context parameter
	r   io.Reader
}

func (c cancelled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}

// tempFile returns a file without a name, which disappears with the process. The file is in $TMPDIR, or in /var/tmp if
// TMPDIR is not set. It is in /tmp, which may be in memory, only if /var/tmp does not exist.
func tempFile() (*os.File, error) {
	f, err := os.CreateTemp(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), "crishim-image-")
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.CreateTemp("", "crishim-image-")
	}
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
