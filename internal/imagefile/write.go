package imagefile

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crishim/crishim/internal/imageref"
)

type Format string

const (
	// OCI is an OCI layout with an additional docker manifest.json, so that docker load accepts it.
	OCI Format = "oci"
	// Docker is the docker save format before OCI layouts. Every engine loads it.
	Docker Format = "docker"
)

// annotationRef is the OCI annotation for the tag of an image.
const annotationRef = "org.opencontainers.image.ref.name"

// Write writes an archive. The output is reproducible: it contains no times or owners.
func Write(out io.Writer, format Format, images []Image) error {
	w := &writer{tar: tar.NewWriter(out), format: format, written: map[string]bool{}}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	list := []dockerImage{}
	for _, image := range images {
		best := image.Best()
		if format == Docker {
			image.Manifests = []Manifest{best}
		}
		for _, m := range image.Manifests {
			if err := w.manifest(m); err != nil {
				return err
			}
		}
		if format == OCI {
			if err := w.write(w.name(image.Target.Descriptor), image.Target.Size, bytes.NewReader(image.Target.Text)); err != nil {
				return err
			}
			index.Manifests = append(index.Manifests, entries(image)...)
		}
		entry := dockerImage{Config: w.name(best.Config.Descriptor), RepoTags: []string{}, Layers: []string{}}
		for _, name := range image.Names {
			entry.RepoTags = append(entry.RepoTags, imageref.Familiar(name))
		}
		for _, l := range best.Layers {
			entry.Layers = append(entry.Layers, w.name(l.Descriptor))
		}
		list = append(list, entry)
	}
	if err := w.json("manifest.json", list); err != nil {
		return err
	}
	if format == OCI {
		if err := w.json("index.json", index); err != nil {
			return err
		}
		if err := w.json("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
			return err
		}
	}
	return w.tar.Close()
}

type writer struct {
	tar     *tar.Writer
	format  Format
	written map[string]bool
}

func (w *writer) name(d v1.Descriptor) string {
	switch media := string(d.MediaType); {
	case w.format == OCI:
		return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex
	case strings.HasSuffix(media, "json"):
		return d.Digest.Hex + ".json"
	case strings.HasSuffix(media, "gzip"):
		return d.Digest.Hex + ".tar.gz"
	}
	return d.Digest.Hex + ".tar"
}

func (w *writer) manifest(m Manifest) error {
	for _, l := range m.Layers {
		if err := w.layer(l); err != nil {
			return fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	if err := w.write(w.name(m.Config.Descriptor), m.Config.Size, bytes.NewReader(m.Config.Text)); err != nil || w.format == Docker {
		return err
	}
	return w.write(w.name(m.Descriptor), m.Size, bytes.NewReader(m.Text))
}

func (w *writer) layer(l Layer) error {
	name, size := w.name(l.Descriptor), l.Size
	if w.written[name] {
		return nil
	}
	content, err := l.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	from := io.Reader(content)
	// A zstd layer is written uncompressed in the docker format, because engines before 23 do not support zstd.
	if w.format == Docker && strings.HasSuffix(string(l.MediaType), "zstd") {
		if size, err = l.unpackedSize(); err != nil {
			return err
		}
		plain, _, end, err := decompress(content)
		if err != nil {
			return err
		}
		defer end()
		from = plain
	}
	return w.write(name, size, from)
}

func (l Layer) unpackedSize() (int64, error) {
	content, err := l.finder.store.Open(l.Digest)
	if err != nil {
		return 0, err
	}
	defer content.Close()
	plain, _, end, err := decompress(content)
	if err != nil {
		return 0, err
	}
	defer end()
	return io.Copy(io.Discard, plain)
}

func (w *writer) json(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return w.write(name, int64(len(text)), bytes.NewReader(text))
}

func (w *writer) write(name string, size int64, r io.Reader) error {
	if w.written[name] {
		return nil
	}
	w.written[name] = true
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}); err != nil {
		return err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{w.tar}, struct{ io.Reader }{r}, make([]byte, copySize))
	return err
}

func entries(image Image) []v1.Descriptor {
	d := image.Target.Descriptor
	if p := image.Manifests[0].Platform; !d.MediaType.IsIndex() && p.OS != "" {
		d.Platform = &v1.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
	}
	if len(image.Names) == 0 {
		return []v1.Descriptor{d}
	}
	var list []v1.Descriptor
	for _, name := range image.Names {
		d.Annotations = map[string]string{annotationName: name, annotationRef: tagOf(name)}
		list = append(list, d)
	}
	return list
}

func tagOf(name string) string {
	ref, err := reference.ParseNamed(name)
	if tagged, ok := ref.(reference.Tagged); ok && err == nil {
		return tagged.Tag()
	}
	return name
}
