package imagefile

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// Format is a kind of archive.
type Format string

const (
	// OCI is an OCI layout. It also has docker's manifest.json, so that docker load takes it.
	OCI Format = "oci"
	// Docker is what docker save wrote before it wrote OCI layouts.
	Docker Format = "docker"
	// Engine is Docker for an engine, where names of files mean nothing and nothing is written twice.
	Engine Format = "engine"
)

// Writer writes an archive. It is a Sink.
type Writer struct {
	out    io.Writer
	file   *os.File // out, where it is a regular file: a layer's name may be written after its content
	tar    *tar.Writer
	format Format
	layers map[digest.Digest]string // to the names they have in the archive
	count  int                      // of layers written for an engine
	// Has reports whether the engine that the archive is for has a layer, which is left out then. Nil: it has none.
	Has func(diffID digest.Digest) bool
}

// NewWriter returns a sink that writes an archive.
func NewWriter(out io.Writer, format Format) *Writer {
	w := &Writer{out: out, tar: tar.NewWriter(out), format: format, layers: map[digest.Digest]string{}}
	if f, ok := out.(*os.File); ok && writesAt(f) {
		w.file = f
	}
	return w
}

// writesAt reports whether a place in a file can be written again: it is no pipe, and not open for appending (>>).
func writesAt(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_APPEND == 0
}

// name of a layer or document of a digest.
func (w *Writer) name(d digest.Digest, mediaType string) string {
	switch {
	case w.format == OCI:
		return "blobs/" + d.Algorithm().String() + "/" + d.Encoded()
	case strings.HasSuffix(mediaType, "json"):
		return d.Encoded() + ".json"
	case mediaType == ocispec.MediaTypeImageLayer || strings.HasSuffix(mediaType, ".tar"):
		return d.Encoded() + ".tar"
	}
	return d.Encoded() + ".tar.gz"
}

// Layer implements Sink.
func (w *Writer) Layer(c *Content) error {
	if _, done := w.layers[c.Digest]; done {
		return nil
	}
	switch {
	case w.Has != nil && c.DiffID != "" && w.Has(c.DiffID):
		w.layers[c.Digest] = w.name(c.Digest, c.MediaType) // under which the engine does not look then
		return nil
	case w.format == Engine && c.MediaType == ocispec.MediaTypeImageLayerZstd:
		return w.unpack(c)
	case c.Digest != "":
		name := w.name(c.Digest, c.MediaType)
		if err := w.write(name, c.Size, c.Reader); err != nil {
			return err
		}
		w.layers[c.Digest] = name
		return nil
	case w.format == Engine:
		return w.number(c, c.Size, c.Reader)
	case w.file != nil:
		return w.patch(c)
	}
	return w.spool(c)
}

// number writes a layer under a name that tells nothing.
func (w *Writer) number(c *Content, size int64, r io.Reader) error {
	w.count++
	name := fmt.Sprintf("layer-%d.tar", w.count)
	err := w.write(name, size, r)
	w.layers[c.Digest] = name
	return err
}

// unpack writes what a layer unpacks to: engines before 23 do not know zstd.
func (w *Writer) unpack(c *Content) error {
	f, err := TempFile()
	if err != nil {
		return err
	}
	defer f.Close()
	plain, end, err := decompress(c.Reader, maxRatio)
	if err != nil {
		return err
	}
	defer end()
	size, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{plain}, make([]byte, copySize))
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c.Reader); err != nil { // the check at its end
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.number(c, size, f)
}

// patch writes a layer and then its header, which has its digest.
func (w *Writer) patch(c *Content) error {
	if err := w.tar.Flush(); err != nil {
		return err
	}
	at, err := w.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if err := w.write("blobs", c.Size, c.Reader); err != nil {
		return err
	}
	if err := w.tar.Flush(); err != nil {
		return err
	}
	if _, twice := w.layers[c.Digest]; twice { // under another name in the archive that is read
		if _, err := w.file.Seek(at, io.SeekStart); err != nil {
			return err
		}
		return w.file.Truncate(at)
	}
	var header bytes.Buffer
	name := w.name(c.Digest, c.MediaType)
	if err := tar.NewWriter(&header).WriteHeader(headerOf(name, c.Size)); err != nil {
		return err
	}
	w.layers[c.Digest] = name
	_, err = w.file.WriteAt(header.Bytes(), at)
	return err
}

// spool keeps a layer in a file without a name until its digest is known.
func (w *Writer) spool(c *Content) error {
	f, err := TempFile()
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{c.Reader}, make([]byte, copySize)); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.Layer(&Content{Descriptor: c.Descriptor, Reader: f})
}

// TempFile returns a file that is gone with the process, however that ends. It is in TMPDIR, else in /var/tmp: /tmp may
// be memory.
func TempFile() (*os.File, error) {
	f, err := os.CreateTemp(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), "crishim-image-")
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.CreateTemp("", "crishim-image-")
	}
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// headerOf returns one of 512 bytes, whatever the size.
func headerOf(name string, size int64) *tar.Header {
	// The same images make the same archive: without times and owners.
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatUSTAR}
	if size > maxUSTAR {
		h.Format = tar.FormatGNU
	}
	return h
}

// maxUSTAR is the largest size that a header without extensions has room for.
const maxUSTAR = 1<<33 - 1

func (w *Writer) write(name string, size int64, r io.Reader) error {
	if err := w.tar.WriteHeader(headerOf(name, size)); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{w.tar}, struct{ io.Reader }{r}, make([]byte, copySize))
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes, and there should be %d", n, size)
	}
	return err
}

// Finish implements Sink.
func (w *Writer) Finish(images []Image, documents Documents) error {
	written := map[digest.Digest]bool{}
	document := func(d ocispec.Descriptor) error {
		if written[d.Digest] {
			return nil
		}
		written[d.Digest] = true
		text, ok := documents[d.Digest]
		if !ok {
			return fmt.Errorf("%s is missing", d.Digest)
		}
		return w.write(w.name(d.Digest, "json"), int64(len(text)), bytes.NewReader(text))
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	list := []dockerImage{}
	for _, image := range images {
		for _, m := range image.Manifests {
			if w.format != OCI && m.Digest != image.best().Digest {
				continue
			}
			if err := document(m.Config); err != nil {
				return err
			}
			if w.format != OCI {
				continue
			}
			if err := document(m.Descriptor); err != nil {
				return err
			}
		}
		if w.format == OCI {
			if err := document(image.Target); err != nil {
				return err
			}
			index.Manifests = append(index.Manifests, named(image)...)
		}
		entry := dockerImage{Config: w.name(image.best().Config.Digest, "json"), RepoTags: []string{}, Layers: []string{}}
		for _, name := range image.Names {
			entry.RepoTags = append(entry.RepoTags, Familiar(name))
		}
		for _, l := range image.best().Layers {
			name, ok := w.layers[l.Digest]
			if !ok {
				return fmt.Errorf("the layer %s is missing", l.Digest)
			}
			entry.Layers = append(entry.Layers, name)
		}
		list = append(list, entry)
	}
	type last struct {
		name string
		data any
	}
	files := []last{{dockerManifests, list}}
	if w.format == OCI {
		files = append(files, last{ocispec.ImageIndexFile, index}, last{ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}})
	}
	for _, f := range files {
		text, err := json.Marshal(f.data)
		if err != nil {
			return err
		}
		if err := w.write(f.name, int64(len(text)), bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return w.tar.Close()
}

// named returns an image's entries in index.json: one for each name.
func named(image Image) []ocispec.Descriptor {
	d := image.Target
	if !IsIndex(d.MediaType) {
		d.Platform = image.Manifests[0].Platform
		if p := d.Platform; p != nil {
			d.Platform = &ocispec.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
		}
	}
	if len(image.Names) == 0 {
		return []ocispec.Descriptor{d}
	}
	var list []ocispec.Descriptor
	for _, name := range image.Names {
		d.Annotations = map[string]string{annotationName: name, ocispec.AnnotationRefName: tagOf(name)}
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

// Familiar returns a name as docker shows it: without docker.io/library.
func Familiar(name string) string {
	if ref, err := reference.ParseNormalizedNamed(name); err == nil {
		return reference.FamiliarString(ref)
	}
	return name
}
