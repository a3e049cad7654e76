// Package imagefile reads and writes archives of images: OCI layouts and what docker save writes, both as tar
// streams. Read checks an archive and hands what is in it to a Sink, which is an archive to write (NewWriter), an
// engine or a registry. Nothing here needs an archive twice, or a whole layer in memory.
//
// An archive is not trusted: names, digests, sizes and media types are checked, documents (indexes, manifests,
// configurations) are limited, and nothing is unpacked but what hashes need.
package imagefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is one image of an archive or a runtime.
type Image struct {
	Names  []string           // in full, with a tag: docker.io/library/busybox:1.36; may be empty
	Target ocispec.Descriptor // its index, or its only manifest
	// Manifests are those whose content is there; an index may have more. There is at least one.
	Manifests []Manifest
}

// Manifest is an image for one platform.
type Manifest struct {
	ocispec.Descriptor
	Config  ocispec.Descriptor
	Layers  []ocispec.Descriptor
	DiffIDs []digest.Digest // of what the layers unpack to
}

// Content is a layer while it is copied.
type Content struct {
	ocispec.Descriptor               // the digest is empty until the end where an archive does not name it
	DiffID             digest.Digest // of what it unpacks to; empty where that is not known
	io.Reader                        // checks size and digest at its end
}

// Sink is where images go.
type Sink interface {
	// Layer stores a layer. A sink that has it already returns without reading it. What is stored does not count
	// before Finish.
	Layer(c *Content) error
	// Finish stores the images, whose layers are there, and makes them valid. Documents has their indexes,
	// manifests and configurations.
	Finish(images []Image, documents Documents) error
}

// Documents are indexes, manifests and configurations.
type Documents map[digest.Digest][]byte

// Add keeps a document and returns its descriptor.
func (d Documents) Add(mediaType string, text []byte) ocispec.Descriptor {
	id := digest.FromBytes(text)
	d[id] = text
	return ocispec.Descriptor{MediaType: mediaType, Digest: id, Size: int64(len(text))}
}

// Media types that OCI's replaced.
const (
	DockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	DockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	DockerConfig   = "application/vnd.docker.container.image.v1+json"
)

var layerTypes = []string{
	ocispec.MediaTypeImageLayer, ocispec.MediaTypeImageLayerGzip, ocispec.MediaTypeImageLayerZstd,
	"application/vnd.oci.image.layer.nondistributable.v1.tar", "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
	"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
	"application/vnd.docker.image.rootfs.diff.tar", "application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.docker.image.rootfs.diff.tar.zstd",
	"application/vnd.docker.image.rootfs.foreign.diff.tar", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
}

// IsIndex reports whether a media type is that of an image for several platforms.
func IsIndex(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == DockerIndex
}

// IsManifest reports whether a media type is that of an image for one platform.
func IsManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageManifest || mediaType == DockerManifest
}

// Limits of what is kept in memory.
const (
	maxDocument  = 4 << 20 // as the registries have
	maxDocuments = 32 << 20
	maxParsed    = 128 << 20
	maxLayers    = 1000
	maxImages    = 1000
)

// Complete finds the manifests of an image, of which has reports whether their content is there. Document returns
// an index, a manifest or a configuration; nil is one that is not there. Only the manifests that want takes are
// looked at.
func Complete(target ocispec.Descriptor, want func(*ocispec.Platform) bool, document func(ocispec.Descriptor) ([]byte, error), has func(ocispec.Descriptor) (bool, error)) ([]Manifest, error) {
	children := []ocispec.Descriptor{target}
	if IsIndex(target.MediaType) {
		text, err := document(target)
		if err != nil {
			return nil, err
		}
		if text == nil {
			return nil, &MissingError{"the index " + target.Digest.String()}
		}
		var index ocispec.Index
		if err := json.Unmarshal(text, &index); err != nil {
			return nil, fmt.Errorf("index %s: %w", target.Digest, err)
		}
		if len(index.Manifests) > maxImages {
			return nil, fmt.Errorf("index %s: more than %d manifests", target.Digest, maxImages)
		}
		children = index.Manifests
	}
	var complete []Manifest
	var missing error
	for _, child := range children {
		if !IsManifest(child.MediaType) {
			if IsIndex(target.MediaType) {
				continue // an attachment: signatures and such are no images
			}
			return nil, fmt.Errorf("%s has the media type %q, and is no image", child.Digest, child.MediaType)
		}
		m, err := readManifest(child, document)
		if err != nil {
			return nil, err
		}
		if m == nil {
			missing = &MissingError{"the manifest " + child.Digest.String()}
			continue
		}
		if attestation(*m) || !want(m.Platform) {
			continue
		}
		if absent, err := m.absent(has); err != nil {
			return nil, err
		} else if absent != nil {
			missing = fmt.Errorf("manifest %s: %w", child.Digest, &MissingError{absent.Digest.String()})
			continue
		}
		complete = append(complete, *m)
	}
	if len(complete) == 0 && missing != nil {
		return nil, missing
	}
	if len(complete) == 0 {
		return nil, fmt.Errorf("%s is for other platforms", target.Digest)
	}
	return complete, nil
}

// MissingError is the error of an image of which a part is not there.
type MissingError struct{ what string }

func (e *MissingError) Error() string { return e.what + " is missing" }

// attestation reports whether a manifest is what builders add about how an image was built.
func attestation(m Manifest) bool {
	p := m.Platform
	return p != nil && p.OS == "unknown" && p.Architecture == "unknown" || m.Annotations["vnd.docker.reference.type"] != ""
}

func (m *Manifest) absent(has func(ocispec.Descriptor) (bool, error)) (*ocispec.Descriptor, error) {
	for _, d := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if there, err := has(d); err != nil || !there {
			return &d, err
		}
	}
	return nil, nil
}

// readManifest returns nil where the manifest, or its configuration, is not there.
func readManifest(d ocispec.Descriptor, document func(ocispec.Descriptor) ([]byte, error)) (*Manifest, error) {
	text, err := document(d)
	if err != nil || text == nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	found := &Manifest{Descriptor: d, Config: m.Config, Layers: m.Layers}
	if attestation(*found) {
		return found, nil
	}
	if t := m.Config.MediaType; t != ocispec.MediaTypeImageConfig && t != DockerConfig {
		return nil, fmt.Errorf("manifest %s: the configuration has the media type %q, and is no image's", d.Digest, t)
	}
	if len(m.Layers) > maxLayers {
		return nil, fmt.Errorf("manifest %s: more than %d layers", d.Digest, maxLayers)
	}
	for _, layer := range m.Layers {
		if !slices.Contains(layerTypes, layer.MediaType) {
			return nil, fmt.Errorf("manifest %s: the layer %s has the media type %q, and is no file system's", d.Digest, layer.Digest, layer.MediaType)
		}
		if err := layer.Digest.Validate(); err != nil || layer.Size < 0 {
			return nil, fmt.Errorf("manifest %s: invalid layer %q of %d bytes", d.Digest, layer.Digest, layer.Size)
		}
	}
	if err := m.Config.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("manifest %s: invalid configuration %q", d.Digest, m.Config.Digest)
	}
	config, err := document(m.Config)
	if err != nil || config == nil {
		return nil, err
	}
	var image ocispec.Image
	if err := json.Unmarshal(config, &image); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", m.Config.Digest, err)
	}
	if n := len(image.RootFS.DiffIDs); n != len(m.Layers) {
		return nil, fmt.Errorf("configuration %s: %d layers, and the manifest has %d", m.Config.Digest, n, len(m.Layers))
	}
	found.Platform, found.DiffIDs = &image.Platform, image.RootFS.DiffIDs
	return found, nil
}

// AnyPlatform takes every manifest.
func AnyPlatform(*ocispec.Platform) bool { return true }

// ParsePlatform reads OS/ARCH[/VARIANT], or the architecture alone.
func ParsePlatform(text string) (func(*ocispec.Platform) bool, error) {
	parts := strings.Split(text, "/")
	if len(parts) == 1 {
		parts = []string{"linux", text}
	}
	if len(parts) > 3 || slices.Contains(parts, "") {
		return nil, fmt.Errorf("must be OS/ARCHITECTURE, such as linux/%s", runtime.GOARCH)
	}
	switch parts[1] { // as uname and rpm call them
	case "x86_64":
		parts[1] = "amd64"
	case "aarch64":
		parts[1] = "arm64"
	}
	return func(p *ocispec.Platform) bool {
		return p != nil && p.OS == parts[0] && p.Architecture == parts[1] && (len(parts) == 2 || p.Variant == parts[2])
	}, nil
}

// best returns the manifest for an engine that takes one: that of this machine's platform, else the first.
func (i Image) best() Manifest {
	own := slices.IndexFunc(i.Manifests, func(m Manifest) bool {
		return m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == runtime.GOARCH
	})
	return i.Manifests[max(own, 0)]
}

// Add adds an image to a list, or its names to the same image there.
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

// One returns the image with only the manifest for an engine that takes one.
func (i Image) One() Image {
	i.Manifests = []Manifest{i.best()}
	return i
}

// ID returns what Docker and CRI name the image by: its configuration's digest.
func (i Image) ID() string { return i.best().Config.Digest.String() }

// Name returns a name in full, with docker.io and a tag, as runtimes keep it.
func Name(text string) (string, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return "", err
	}
	if _, digested := named.(reference.Digested); digested {
		return "", fmt.Errorf("a name with a digest cannot be given to an image")
	}
	return reference.TagNameOnly(named).String(), nil
}

// sniff returns the media type of a layer that begins so.
func sniff(start []byte) string {
	switch {
	case bytes.HasPrefix(start, gzipMagic):
		return ocispec.MediaTypeImageLayerGzip
	case bytes.HasPrefix(start, zstdMagic):
		return ocispec.MediaTypeImageLayerZstd
	}
	return ocispec.MediaTypeImageLayer
}
