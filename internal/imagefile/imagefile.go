// Package imagefile reads and writes image archives: OCI layouts and docker save archives, both as tar. Open reads an
// archive, Write writes one. Manifests and digests use the types of go-containerregistry, but not its readers: layout
// needs a directory, which a killed process would leave behind, and tarball scans the archive for each file and
// compresses layers to compute their digests.
//
// Archives are untrusted: names, digests, sizes and media types are checked, and memory and the compression ratio are
// limited. Layers are only decompressed to verify their hashes, and to write zstd layers for old engines.
package imagefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crishim/crishim/internal/bounded"
)

type Image struct {
	Names     []string   // full names with a tag, such as docker.io/library/busybox:1.36; may be empty
	Target    Document   // the index, or the only manifest
	Manifests []Manifest // at least one; manifests for other platforms or without content are left out
}

type Manifest struct {
	Document
	Config   Document
	Platform v1.Platform
	Layers   []Layer
}

type Document struct {
	v1.Descriptor
	Text []byte
}

type Layer struct {
	v1.Descriptor
	DiffID v1.Hash // digest of the uncompressed layer
	finder *Finder
}

func (l Layer) Open() (io.ReadCloser, error) {
	content, err := l.finder.store.Open(l.Digest)
	if err != nil {
		return nil, err
	}
	if l.finder.watch != nil {
		content = l.finder.watch(l.Descriptor, content)
	}
	return readCloser{checked(content, l.Descriptor), content}, nil
}

type Store interface {
	Size(v1.Hash) (int64, error)
	Open(v1.Hash) (io.ReadCloser, error)
}

// ErrMissing is the error for content that the archive or containerd's content store lacks. Finder.Find skips
// incomplete manifests of an index and returns ErrMissing only if no manifest remains.
var ErrMissing = errors.New("is missing")

// Limits of manifests and configurations. Some archives refer to the same document many times.
const (
	maxDocument  = 4 << 20 // the usual limit of registries
	maxDocuments = 32 << 20
	maxParsed    = 128 << 20
	maxValues    = 200_000 // per document; a value takes more memory than its text
	maxLayers    = 1000
	maxImages    = 1000
)

type Finder struct {
	store     Store
	platform  *v1.Platform
	watch     Watch
	held      bounded.Budget // size of all documents, each counted once
	parsed    bounded.Budget // size of all documents, each counted as often as it is parsed
	documents map[v1.Hash]Document
	manifests map[v1.Hash]*Manifest
}

// Watch wraps the reader of a layer to observe progress.
type Watch func(v1.Descriptor, io.ReadCloser) io.ReadCloser

// NewFinder returns a Finder for images of a platform; nil means any platform. watch may be nil.
func NewFinder(store Store, platform *v1.Platform, watch Watch) *Finder {
	return &Finder{
		store: store, platform: platform, watch: watch, documents: map[v1.Hash]Document{}, manifests: map[v1.Hash]*Manifest{},
		held:   bounded.Budget{Left: maxDocuments, Of: fmt.Sprintf("%d MiB of manifests and configurations", maxDocuments>>20)},
		parsed: bounded.Budget{Left: maxParsed, Of: fmt.Sprintf("%d MiB of manifests and configurations, with those that are named again and again", maxParsed>>20)},
	}
}

func (f *Finder) Find(target v1.Descriptor) (image Image, err error) {
	target = v1.Descriptor{MediaType: target.MediaType, Digest: target.Digest, Size: target.Size}
	children := []v1.Descriptor{target}
	if target.MediaType.IsIndex() {
		var index v1.IndexManifest
		if image.Target, err = f.document(target, &index); err != nil {
			return image, fmt.Errorf("index %s: %w", target.Digest, err)
		}
		if children = index.Manifests; len(children) > maxImages {
			return image, fmt.Errorf("index %s: more than %d manifests", target.Digest, maxImages)
		}
	}
	var missing error
	for _, child := range children {
		switch {
		case target.MediaType.IsIndex() && (!child.MediaType.IsImage() || attestation(child)):
			continue // signatures and similar artifacts
		case !child.MediaType.IsImage():
			return image, fmt.Errorf("%s has the media type %q, and is no image", child.Digest, child.MediaType)
		}
		m, err := f.manifest(child)
		if errors.Is(err, ErrMissing) {
			missing = err
			continue
		}
		if err != nil {
			return image, fmt.Errorf("manifest %s: %w", child.Digest, err)
		}
		twice := slices.ContainsFunc(image.Manifests, func(other Manifest) bool { return other.Digest == m.Digest })
		if !twice && (f.platform == nil || m.Platform.Satisfies(*f.platform)) {
			image.Manifests = append(image.Manifests, *m)
		}
	}
	switch {
	case len(image.Manifests) == 0 && missing != nil:
		return image, missing
	case len(image.Manifests) == 0:
		return image, fmt.Errorf("%s is for other platforms", target.Digest)
	case !target.MediaType.IsIndex():
		image.Target = image.Manifests[0].Document
	}
	return image, nil
}

// attestation reports whether a manifest is a builder's attestation instead of an image.
func attestation(d v1.Descriptor) bool {
	p := d.Platform
	return p != nil && p.OS == "unknown" && p.Architecture == "unknown" || d.Annotations["vnd.docker.reference.type"] != ""
}

// manifest reads each manifest once, because some archives refer to the same manifest many times.
func (f *Finder) manifest(d v1.Descriptor) (*Manifest, error) {
	if m, done := f.manifests[d.Digest]; done {
		return m, nil
	}
	var m v1.Manifest
	text, err := f.document(d, &m)
	if err != nil {
		return nil, err
	}
	if !m.Config.MediaType.IsConfig() {
		return nil, fmt.Errorf("the configuration has the media type %q, and is no image's", m.Config.MediaType)
	}
	var config struct {
		v1.Platform
		RootFS v1.RootFS
	}
	found := &Manifest{Document: text}
	if found.Config, err = f.document(m.Config, &config); err != nil {
		return nil, err
	}
	if n := len(config.RootFS.DiffIDs); n != len(m.Layers) || n > maxLayers {
		return nil, fmt.Errorf("the configuration has %d layers, the manifest %d, and there may be %d", n, len(m.Layers), maxLayers)
	}
	for i, l := range m.Layers {
		if !l.MediaType.IsLayer() && l.MediaType != dockerZstd {
			return nil, fmt.Errorf("the layer %s has the media type %q, and is no file system's", l.Digest, l.MediaType)
		}
		if err := f.has(l); err != nil {
			return nil, err
		}
		found.Layers = append(found.Layers, Layer{l, config.RootFS.DiffIDs[i], f})
	}
	found.Platform = config.Platform
	f.manifests[d.Digest] = found
	return found, nil
}

// dockerZstd is used by builders that combine docker's media types with zstd.
const dockerZstd types.MediaType = "application/vnd.docker.image.rootfs.diff.tar.zstd"

func (f *Finder) document(d v1.Descriptor, to any) (Document, error) {
	if err := f.has(d); err != nil {
		return Document{}, err
	}
	known, done := f.documents[d.Digest]
	if !done {
		if d.Size > maxDocument {
			return known, fmt.Errorf("%s of %d bytes is no manifest or configuration", d.Digest, d.Size)
		}
		if err := f.held.Take(d.Size); err != nil {
			return known, err
		}
		content, err := f.store.Open(d.Digest)
		if err != nil {
			return known, err
		}
		defer content.Close()
		if known.Text, err = io.ReadAll(checked(content, d)); err != nil {
			return known, err
		}
		f.documents[d.Digest] = known
	}
	if err := f.parsed.Take(d.Size); err != nil {
		return known, err
	}
	known.Descriptor = v1.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
	return known, parse(known, to)
}

func (f *Finder) has(d v1.Descriptor) error {
	if d.Digest.Algorithm != "sha256" {
		return fmt.Errorf("%q is no sha256 digest", d.Digest)
	}
	size, err := f.store.Size(d.Digest)
	if errors.Is(err, ErrMissing) {
		return fmt.Errorf("%s %w", d.Digest, err)
	}
	if err == nil && size != d.Size {
		err = fmt.Errorf("%s has %d bytes, and should have %d", d.Digest, size, d.Size)
	}
	return err
}

// parse rejects a document whose kind differs from the descriptor: other tools could read a manifest with the fields of
// an index as a different image.
func parse(d Document, to any) error {
	if bytes.Count(d.Text, []byte{','}) > maxValues {
		return fmt.Errorf("%s has more than %d values", d.Digest, maxValues)
	}
	err := json.Unmarshal(d.Text, to)
	if err == nil && (d.MediaType.IsIndex() || d.MediaType.IsImage()) {
		var kind struct {
			MediaType         types.MediaType
			Manifests, Layers []json.RawMessage
		}
		err = json.Unmarshal(d.Text, &kind)
		switch {
		case err != nil:
		case kind.MediaType != "" && kind.MediaType != d.MediaType:
			err = fmt.Errorf("its media type is %q, and must be %q", kind.MediaType, d.MediaType)
		case d.MediaType.IsIndex() && len(kind.Layers) > 0, d.MediaType.IsImage() && len(kind.Manifests) > 0:
			err = errors.New("it must not have both manifests and layers")
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", d.Digest, err)
	}
	return err
}

type readCloser struct {
	io.Reader
	io.Closer
}

// checked returns a reader that fails as soon as the content is longer than d.Size, and at the end if the content is
// shorter or has another digest.
func checked(r io.Reader, d v1.Descriptor) io.Reader {
	return &checker{r: r, want: d, hash: sha256.New()}
}

type checker struct {
	r    io.Reader
	want v1.Descriptor
	hash hash.Hash
	n    int64
}

func (c *checker) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.hash.Write(b[:n])
	c.n += int64(n)
	switch atEnd := errors.Is(err, io.EOF); {
	case c.n > c.want.Size, atEnd && c.n < c.want.Size:
		err = fmt.Errorf("%d bytes, and there should be %d: %w", c.n, c.want.Size, io.ErrUnexpectedEOF)
	case atEnd && hex.EncodeToString(c.hash.Sum(nil)) != c.want.Digest.Hex:
		err = fmt.Errorf("the content has the digest sha256:%x", c.hash.Sum(nil))
	}
	return n, err
}

func ParsePlatform(text string) (*v1.Platform, error) {
	if !strings.Contains(text, "/") {
		text = "linux/" + text
	}
	p, err := v1.ParsePlatform(text)
	if err != nil || slices.Contains(strings.Split(text, "/"), "") {
		return nil, fmt.Errorf("must be OS/ARCHITECTURE, such as linux/%s", runtime.GOARCH)
	}
	switch p.Architecture { // names used by uname and rpm
	case "x86_64":
		p.Architecture = "amd64"
	case "aarch64":
		p.Architecture = "arm64"
	}
	return p, nil
}

// Best returns the manifest for an engine that accepts a single one: this machine's platform, else the first.
func (i Image) Best() Manifest {
	own := slices.IndexFunc(i.Manifests, func(m Manifest) bool {
		return m.Platform.Satisfies(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	})
	return i.Manifests[max(own, 0)]
}

// RunsOn reports whether the image has a manifest for one of the platforms. An empty list means any platform.
func (i Image) RunsOn(platforms []v1.Platform) bool {
	return len(platforms) == 0 || slices.ContainsFunc(i.Manifests, func(m Manifest) bool {
		return slices.ContainsFunc(platforms, m.Platform.Satisfies)
	})
}

// Add appends an image to a list. If the list has the image already, Add only adds its names.
func Add(list []Image, image Image) []Image {
	i := slices.IndexFunc(list, func(other Image) bool { return other.Target.Digest == image.Target.Digest })
	if i < 0 {
		return append(list, image)
	}
	for _, name := range image.Names {
		if !slices.Contains(list[i].Names, name) {
			list[i].Names = append(list[i].Names, name)
		}
	}
	return list
}

// ID returns the image id of Docker and CRI: the digest of the configuration.
func (i Image) ID() string { return i.Best().Config.Digest.String() }
