package imagefile

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ReadOptions say what to take of an archive.
type ReadOptions struct {
	Platform func(*ocispec.Platform) bool // nil: all
	As       string                       // in place of the archive's names, for an archive with one image
	Trusted  bool                         // it comes from an engine: what layers unpack to is not checked
}

// Read reads an archive, plain or compressed by gzip or zstd, and stores its images in a sink. It returns them.
func Read(ctx context.Context, from io.Reader, o ReadOptions, sink Sink) ([]Image, error) {
	if o.Platform == nil {
		o.Platform = AnyPlatform
	}
	plain, end, err := decompress(&cancelled{ctx, from}, maxRatio)
	if err != nil {
		return nil, err
	}
	defer end()
	a := &archive{options: o, sink: sink, files: map[string]file{}, links: map[string]string{}, layers: map[digest.Digest]layer{}, documents: Documents{}}
	if err := a.readAll(tar.NewReader(plain)); err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, plain); err != nil { // the checksum at the end of what is compressed
		return nil, fmt.Errorf("after the last entry: %w", truncated(err))
	}
	images, err := a.images()
	if err != nil {
		return nil, err
	}
	if o.As != "" {
		if len(images) != 1 {
			return nil, fmt.Errorf("the archive has %d images, and one name is for one image", len(images))
		}
		images[0].Names = []string{o.As}
	}
	for _, image := range images {
		if err := a.layersAmongDocuments(image); err != nil {
			return nil, err
		}
	}
	return images, sink.Finish(images, a.documents)
}

type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}

// archive is what is known of an archive while it is read.
type archive struct {
	options   ReadOptions
	sink      Sink
	files     map[string]file   // by name
	links     map[string]string // old docker saves a layer once, and links the others to it
	layers    map[digest.Digest]layer
	documents Documents
	held      int // bytes of documents
	parsed    int // of documents, each as often as it is named
}

type file struct {
	digest digest.Digest
	size   int64
}

type layer struct {
	ocispec.Descriptor
	diffID digest.Digest // of what it unpacks to; empty where that is not checked
}

// maxEntries is more than an archive of a thousand images has.
const maxEntries = 200_000

func (a *archive) readAll(r *tar.Reader) error {
	for last := "the beginning"; ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %s: %w", last, notTar(err, last))
		}
		last = fmt.Sprintf("entry %q", h.Name)
		if len(a.files)+len(a.links) >= maxEntries {
			return fmt.Errorf("%s: more than %d entries", last, maxEntries)
		}
		if err := a.entry(h, r); err != nil {
			return fmt.Errorf("%s: %w", last, truncated(err))
		}
	}
}

func notTar(err error, last string) error {
	if errors.Is(err, tar.ErrHeader) && last == "the beginning" {
		return errors.New("this is no tar archive")
	}
	return truncated(err)
}

func truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the archive is truncated")
	}
	return err
}

// entry takes an entry: a document is kept, a layer passed on.
func (a *archive) entry(h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if path.IsAbs(name) || leadsOut(name) {
		return errors.New("the name leads out of the archive")
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return nil
	case tar.TypeSymlink, tar.TypeLink:
		return a.link(name, h)
	}
	if err := plainFile(h); err != nil {
		return err
	}
	if _, twice := a.files[name]; twice {
		return errors.New("a second entry of this name")
	}
	want, err := digestOf(name)
	if err != nil {
		return err
	}
	start := bufio.NewReaderSize(r, copySize)
	first, err := start.Peek(1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	isLayer := want != "" || path.Base(name) == "layer.tar" || strings.HasSuffix(name, ".tar") || strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
	switch {
	case len(first) == 1 && (first[0] == '{' || first[0] == '[') && h.Size <= maxDocument:
		return a.document(name, want, start, h.Size)
	case isLayer:
		return a.layer(name, want, start, h.Size)
	case h.Size <= maxDocument: // VERSION and such
		return nil
	}
	return errors.New("this is no part of an image")
}

// plainFile returns an error where an entry is no file, or one of which a few bytes may stand for any number of zeros.
func plainFile(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("type %q is no file's", h.Typeflag)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return errors.New("it is a sparse file")
		}
	}
	return nil
}

func leadsOut(name string) bool { return name == ".." || strings.HasPrefix(name, "../") }

func (a *archive) link(name string, h *tar.Header) error {
	target := path.Clean(h.Linkname)
	if h.Typeflag == tar.TypeSymlink {
		target = path.Join(path.Dir(name), h.Linkname)
	}
	if path.IsAbs(h.Linkname) || leadsOut(target) {
		return fmt.Errorf("the link to %q leads out of the archive", h.Linkname)
	}
	a.links[name] = target
	return nil
}

// digestOf returns the digest that the name of an OCI layout's blob is, and none for other names.
func digestOf(name string) (digest.Digest, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[0] != "blobs" {
		return "", nil
	}
	d := digest.NewDigestFromEncoded(digest.Algorithm(parts[1]), parts[2])
	if err := d.Validate(); err != nil || d.Algorithm() != digest.SHA256 {
		return "", errors.New("the name is no sha256 digest's")
	}
	return d, nil
}

func (a *archive) document(name string, want digest.Digest, r io.Reader, size int64) error {
	if a.held += int(size); a.held > maxDocuments {
		return fmt.Errorf("more than %d MiB of manifests and configurations", maxDocuments>>20)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	got := digest.FromBytes(text)
	if want != "" && got != want {
		return fmt.Errorf("the content has the digest %s", got)
	}
	a.documents[got] = text
	a.files[name] = file{got, size}
	return nil
}

func (a *archive) layer(name string, want digest.Digest, r *bufio.Reader, size int64) error {
	start, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	l := layer{Descriptor: ocispec.Descriptor{MediaType: sniff(start), Digest: want, Size: size}}
	c := &Content{Descriptor: l.Descriptor}
	if l.MediaType == ocispec.MediaTypeImageLayer {
		c.DiffID = want
	}
	in := newVerifier(c, r, !a.options.Trusted && l.MediaType != ocispec.MediaTypeImageLayer)
	defer in.end()
	c.Reader = in
	if err := a.sink.Layer(c); err != nil {
		if in.err != nil && !errors.Is(in.err, io.EOF) { // the cause of the sink's failure
			return in.err
		}
		return err
	}
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{in}, make([]byte, copySize)); err != nil {
		return err
	}
	l.Digest = c.Digest
	if l.diffID, err = in.unpacked(); err != nil {
		return err
	}
	a.files[name], a.layers[l.Digest] = file{l.Digest, size}, l
	return nil
}

// layersAmongDocuments stores layers that begin like documents, which only the manifests tell apart.
func (a *archive) layersAmongDocuments(image Image) error {
	for _, m := range image.Manifests {
		for _, d := range m.Layers {
			if _, done := a.layers[d.Digest]; done {
				continue
			}
			text := a.documents[d.Digest]
			a.layers[d.Digest] = layer{Descriptor: d}
			if err := a.sink.Layer(&Content{Descriptor: d, Reader: bytes.NewReader(text)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// images finds the images: by index.json, as OCI has it, else by docker's manifest.json.
func (a *archive) images() (images []Image, err error) {
	if f, ok := a.files[ocispec.ImageIndexFile]; ok {
		images, err = a.ociImages(a.documents[f.digest])
	} else if f, ok := a.files[dockerManifests]; ok {
		images, err = a.dockerImages(a.documents[f.digest])
	} else {
		return nil, errors.New("this is no archive of images: it has neither index.json nor manifest.json")
	}
	if err == nil && len(images) == 0 {
		err = errors.New("the archive has no images")
	}
	return images, err
}

const dockerManifests = "manifest.json"

// annotationName is containerd's and docker's for an image's name in full.
const annotationName = "io.containerd.image.name"

func (a *archive) ociImages(text []byte) ([]Image, error) {
	var index ocispec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) > maxImages {
		return nil, fmt.Errorf("index.json: more than %d images", maxImages)
	}
	var images []Image
	for _, d := range index.Manifests {
		if attestation(Manifest{Descriptor: d}) {
			continue
		}
		name, err := ociName(d.Annotations)
		if err != nil {
			return nil, fmt.Errorf("index.json: %w", err)
		}
		target := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		manifests, err := Complete(target, a.options.Platform, a.find, a.has)
		if err != nil {
			return nil, fmt.Errorf("index.json: %w", err)
		}
		for _, m := range manifests {
			if err := a.checkLayers(m); err != nil {
				return nil, err
			}
		}
		image := Image{Target: target, Manifests: manifests}
		if name != "" {
			image.Names = []string{name}
		}
		images = Add(images, image)
	}
	return images, nil
}

// ociName returns the name that an index.json has for an image. The standard's own annotation may be only a tag.
func ociName(annotations map[string]string) (string, error) {
	text := annotations[annotationName]
	if ref := annotations[ocispec.AnnotationRefName]; text == "" && strings.ContainsAny(ref, "/:") {
		text = ref
	}
	// containerd also gives images names of digests: NAME@sha256:... and sha256:...
	if id := digest.Digest(text[strings.LastIndex(text, "@")+1:]); text == "" || id.Validate() == nil {
		return "", nil
	}
	name, err := Name(text)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", text, err)
	}
	return name, nil
}

func (a *archive) find(d ocispec.Descriptor) ([]byte, error) {
	text, ok := a.documents[d.Digest]
	if l, layer := a.layers[d.Digest]; layer {
		return nil, fmt.Errorf("%s of %d bytes is no manifest or configuration", d.Digest, l.Size)
	}
	if ok && int64(len(text)) != d.Size {
		return nil, fmt.Errorf("%s has %d bytes, and should have %d", d.Digest, len(text), d.Size)
	}
	if a.parsed += len(text); a.parsed > maxParsed {
		return nil, fmt.Errorf("more than %d MiB of manifests and configurations, with those that are named again and again", maxParsed>>20)
	}
	return text, nil
}

func (a *archive) has(d ocispec.Descriptor) (bool, error) {
	size := int64(-1)
	if l, ok := a.layers[d.Digest]; ok {
		size = l.Size
	} else if text, ok := a.documents[d.Digest]; ok {
		size = int64(len(text))
	}
	if size >= 0 && size != d.Size {
		return false, fmt.Errorf("%s has %d bytes, and should have %d", d.Digest, size, d.Size)
	}
	return size >= 0, nil
}

// checkLayers compares what the layers unpack to with what the configuration says.
func (a *archive) checkLayers(m Manifest) error {
	for i, want := range m.DiffIDs {
		d := m.Layers[i].Digest
		l, ok := a.layers[d]
		if !ok { // it begins like a document, and so is not compressed
			l.diffID = d
		}
		if l.diffID != "" && l.diffID != want {
			return fmt.Errorf("layer %s unpacks to %s, and the configuration has %s", d, l.diffID, want)
		}
	}
	return nil
}
