package imagefile_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/imagefile"
)

// entry is one of a tar archive.
type entry struct {
	name, text, link string
}

func pack(entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(e.text)), Mode: 0o644}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.link, 0
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// sparse is an archive with a file of n zeros that takes two blocks of 512 bytes in it, as GNU tar writes one.
func sparse(name string, n int64) []byte {
	block := func(kind byte, text string) []byte {
		b := pack(entry{name: name, text: text})
		b = b[:len(b)-1024]
		b[156] = kind
		copy(b[148:156], "        ")
		sum := 0
		for _, c := range b[:512] {
			sum += int(c)
		}
		copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
		return b
	}
	records := "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n" + fmt.Sprintf("44 GNU.sparse.realsize=%020d\n", n)
	return slices.Concat(block('x', records), block('0', "0\n"+strings.Repeat("\x00", 510)), pack())
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func zstded(b []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	defer w.Close()
	return w.EncodeAll(b, nil)
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func config(layers ...string) string {
	c := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: "amd64"}}
	c.RootFS.Type = "layers"
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.FromString(l))
	}
	return text(c)
}

// dockerArchive is an image as old engines save it: layers by other names, the second one a link to the first.
func dockerArchive() []byte {
	layer := string(pack(entry{name: "file", text: "content"}))
	return pack(entry{name: "one/VERSION", text: "1.0"}, entry{name: "one/json", text: "{}"}, entry{name: "one/layer.tar", text: layer},
		entry{name: "two/layer.tar", link: "../one/layer.tar"},
		entry{name: "config.json", text: config(layer, layer)},
		entry{name: "manifest.json", text: `[{"Config":"config.json","RepoTags":["app:1","example.com/app:2"],"Layers":["one/layer.tar","two/layer.tar"]}]`})
}

// layout is an OCI layout with one image, which change may change before digests are taken.
type layout struct {
	layer, config string
	manifest      ocispec.Manifest
	index         ocispec.Index
	extra         []entry
	without       string // an entry to leave out
}

func newLayout() *layout {
	unpacked := pack(entry{name: "file", text: "content"})
	l := &layout{layer: string(gzipped(unpacked)), config: config(string(unpacked))}
	l.manifest = ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    describe(ocispec.MediaTypeImageConfig, l.config),
		Layers:    []ocispec.Descriptor{describe(ocispec.MediaTypeImageLayerGzip, l.layer)},
	}
	return l
}

func describe(mediaType, content string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(content), Size: int64(len(content))}
}

func blob(content string) entry {
	return entry{name: "blobs/sha256/" + digest.FromString(content).Encoded(), text: content}
}

func (l *layout) pack() []byte {
	manifest := text(l.manifest)
	d := describe(ocispec.MediaTypeImageManifest, manifest)
	d.Annotations = map[string]string{ocispec.AnnotationRefName: "example.com/app:1"}
	if l.index.Manifests == nil {
		l.index.Manifests = []ocispec.Descriptor{d}
	}
	entries := append([]entry{{name: "oci-layout", text: `{"imageLayoutVersion":"1.0.0"}`}, blob(l.layer), blob(l.config), blob(manifest), {name: "index.json", text: text(l.index)}}, l.extra...)
	return pack(slices.DeleteFunc(entries, func(e entry) bool { return e.name == l.without })...)
}

// memory is a sink that keeps everything.
type memory struct {
	layers    map[digest.Digest]string
	documents imagefile.Documents
	images    []imagefile.Image
}

func (m *memory) Layer(c *imagefile.Content) error {
	b, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if m.layers == nil {
		m.layers = map[digest.Digest]string{}
	}
	m.layers[c.Digest] = string(b)
	return nil
}

func (m *memory) Finish(images []imagefile.Image, documents imagefile.Documents) error {
	m.images, m.documents = images, documents
	return nil
}

func read(t *testing.T, archive []byte, o imagefile.ReadOptions) (*memory, error) {
	t.Helper()
	m := &memory{}
	_, err := imagefile.Read(t.Context(), bytes.NewReader(archive), o, m)
	return m, err
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{
		"docker": dockerArchive(), "docker gzip": gzipped(dockerArchive()), "docker zstd": zstded(dockerArchive()),
		"oci": newLayout().pack(), "oci gzip": gzipped(newLayout().pack()), "oci zstd": zstded(newLayout().pack()),
	} {
		m, err := read(t, archive, imagefile.ReadOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []string{"example.com/app:1"}
		if strings.HasPrefix(name, "docker") {
			want = []string{"docker.io/library/app:1", "example.com/app:2"}
		}
		if len(m.images) != 1 || !slices.Equal(m.images[0].Names, want) || len(m.layers) != 1 {
			t.Errorf("%s: images %+v with %d layers", name, m.images, len(m.layers))
		}
	}
}

// TestWrite reads what was written, in every format and to every kind of output, and compares digests.
func TestWrite(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{"docker": dockerArchive(), "oci": newLayout().pack()} {
		first, err := read(t, archive, imagefile.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []imagefile.Format{imagefile.OCI, imagefile.Docker, imagefile.Engine} {
			var pipe bytes.Buffer
			if _, err := imagefile.Read(t.Context(), bytes.NewReader(archive), imagefile.ReadOptions{}, imagefile.NewWriter(&pipe, format)); err != nil {
				t.Fatal(err)
			}
			again, err := read(t, pipe.Bytes(), imagefile.ReadOptions{})
			if err != nil {
				t.Fatalf("%s as %s: %v", name, format, err)
			}
			if diff := cmp.Diff(first.layers, again.layers); diff != "" {
				t.Errorf("%s as %s: %s", name, format, diff)
			}
			if diff := cmp.Diff(first.images[0].ID(), again.images[0].ID()); diff != "" {
				t.Errorf("%s as %s: %s", name, format, diff)
			}
			if format == imagefile.OCI && again.images[0].Target.Digest != first.images[0].Target.Digest {
				t.Errorf("%s as %s: the manifest has changed", name, format)
			}
			f, err := os.Create(filepath.Join(t.TempDir(), "archive"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := imagefile.Read(t.Context(), bytes.NewReader(archive), imagefile.ReadOptions{}, imagefile.NewWriter(f, format)); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if inFile, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(inFile, pipe.Bytes()) {
				t.Errorf("%s as %s: a file has other bytes than a pipe; %v", name, format, err)
			}
		}
	}
}

// TestWriteZstdForEngine unpacks layers that old engines cannot.
func TestWriteZstdForEngine(t *testing.T) {
	t.Parallel()
	unpacked := pack(entry{name: "file", text: "content"})
	l := newLayout()
	l.layer = string(zstded(unpacked))
	l.manifest.Layers[0] = describe(ocispec.MediaTypeImageLayerZstd, l.layer)
	var out bytes.Buffer
	if _, err := imagefile.Read(t.Context(), bytes.NewReader(l.pack()), imagefile.ReadOptions{}, imagefile.NewWriter(&out, imagefile.Engine)); err != nil {
		t.Fatal(err)
	}
	m, err := read(t, out.Bytes(), imagefile.ReadOptions{})
	if err != nil || m.layers[digest.FromBytes(unpacked)] != string(unpacked) {
		t.Errorf("got %d layers, %v", len(m.layers), err)
	}
}

// TestWriteForEngine leaves out what the engine has, and names it nevertheless.
func TestWriteForEngine(t *testing.T) {
	t.Parallel()
	var plain, out bytes.Buffer // of which the first names its layers by digests
	if _, err := imagefile.Read(t.Context(), bytes.NewReader(dockerArchive()), imagefile.ReadOptions{}, imagefile.NewWriter(&plain, imagefile.OCI)); err != nil {
		t.Fatal(err)
	}
	w := imagefile.NewWriter(&out, imagefile.Engine)
	var known []digest.Digest
	w.Has = func(diffID digest.Digest) bool {
		known = append(known, diffID)
		return true
	}
	images, err := imagefile.Read(t.Context(), &plain, imagefile.ReadOptions{}, w)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Compact(images[0].Manifests[0].DiffIDs), known); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	if _, err := read(t, out.Bytes(), imagefile.ReadOptions{}); err == nil || !strings.Contains(err.Error(), `manifest.json: the layer "`) {
		t.Errorf("got %v, want that a layer is missing", err)
	}
}

func TestReadOptions(t *testing.T) {
	t.Parallel()
	m, err := read(t, dockerArchive(), imagefile.ReadOptions{As: "docker.io/library/other:1"})
	if err != nil || !slices.Equal(m.images[0].Names, []string{"docker.io/library/other:1"}) {
		t.Errorf("--as: %+v, %v", m.images, err)
	}
	// Some tools write an image of several names several times.
	layer := string(pack(entry{name: "file", text: "content"}))
	for name, archive := range map[string][]byte{
		"docker": pack(entry{name: "c.json", text: config(layer)}, entry{name: "l.tar", text: layer}, entry{name: "manifest.json", text: `[
			{"Config":"c.json","RepoTags":["a:1"],"Layers":["l.tar"]}, {"Config":"c.json","RepoTags":["b:1","a:1"],"Layers":["l.tar"]}]`}),
		"oci": func() []byte {
			l := newLayout()
			for _, name := range []string{"a:1", "b:1", "a:1"} {
				d := describe(ocispec.MediaTypeImageManifest, text(l.manifest))
				d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
				l.index.Manifests = append(l.index.Manifests, d)
			}
			return l.pack()
		}(),
	} {
		m, err := read(t, archive, imagefile.ReadOptions{})
		if err != nil || len(m.images) != 1 || !slices.Equal(m.images[0].Names, []string{"docker.io/library/a:1", "docker.io/library/b:1"}) {
			t.Errorf("%s: %+v, %v", name, m.images, err)
		}
	}
	arm, err := imagefile.ParsePlatform("linux/arm64")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := read(t, newLayout().pack(), imagefile.ReadOptions{Platform: arm}); err == nil || !strings.Contains(err.Error(), "is for other platforms") || m.images != nil {
		t.Errorf("another platform: %+v, %v", m.images, err)
	}
}

// containerd's own tools export what was pulled by its digest under that, which is no name to give.
func TestReadNamesOfDigests(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker.io/library/busybox@" + digest.FromString("x").String(), digest.FromString("x").String()} {
		l := newLayout()
		d := describe(ocispec.MediaTypeImageManifest, text(l.manifest))
		d.Annotations = map[string]string{"io.containerd.image.name": name}
		l.index.Manifests = []ocispec.Descriptor{d}
		if m, err := read(t, l.pack(), imagefile.ReadOptions{}); err != nil || len(m.images) != 1 || len(m.images[0].Names) > 0 {
			t.Errorf("%s: images %+v, %v", name, m.images, err)
		}
	}
}

// An index with a manifest for another platform that is not in the archive keeps its digest.
func TestReadIndexOfSeveralPlatforms(t *testing.T) {
	t.Parallel()
	l := newLayout()
	manifest := text(l.manifest)
	there, absent := describe(ocispec.MediaTypeImageManifest, manifest), describe(ocispec.MediaTypeImageManifest, "elsewhere")
	absent.Platform = &ocispec.Platform{OS: "linux", Architecture: "arm64"}
	index := text(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{absent, there}})
	l.extra = []entry{blob(index)}
	d := describe(ocispec.MediaTypeImageIndex, index)
	l.index.Manifests = []ocispec.Descriptor{d}
	m, err := read(t, l.pack(), imagefile.ReadOptions{})
	if err != nil || len(m.images) != 1 || m.images[0].Target.Digest != d.Digest || len(m.images[0].Manifests) != 1 {
		t.Errorf("images %+v, %v", m.images, err)
	}
}

// TestReadRefuses: what is wrong is named, and nothing is finished.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	layoutWith := func(change func(*layout)) []byte {
		l := newLayout()
		change(l)
		return l.pack()
	}
	whole := newLayout().pack()
	bigLayer := strings.Repeat("x", 5<<20)
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"nothing":            {nil, "the archive is empty"},
		"no tar":             {bytes.Repeat([]byte("text "), 1000), "this is no tar archive"},
		"a file system":      {pack(entry{name: "bin/app", text: bigLayer}), `entry "bin/app": this is no part of an image`},
		"no image":           {pack(entry{name: "app.tar", text: "x"}), "it has neither index.json nor manifest.json"},
		"truncated":          {whole[:1546], "the archive is truncated"},
		"truncated gzip":     {gzipped(whole)[:300], "the archive is truncated"},
		"out of the archive": {pack(entry{name: "../../etc/passwd", text: "x"}), `entry "../../etc/passwd": the name leads out of the archive`},
		"absolute":           {pack(entry{name: "/etc/passwd", text: "x"}), "the name leads out of the archive"},
		"a link out":         {pack(entry{name: "a/layer.tar", link: "../../etc/passwd"}), `the link to "../../etc/passwd" leads out of the archive`},
		"an absolute link":   {pack(entry{name: "a/layer.tar", link: "/etc/passwd"}), "leads out of the archive"},
		"a loop of links": {pack(entry{name: "a.tar", link: "b.tar"}, entry{name: "b.tar", link: "a.tar"}, entry{name: "c.json", text: config("x")},
			entry{name: "manifest.json", text: `[{"Config":"c.json","Layers":["a.tar"]}]`}), `the layer "a.tar" is missing`},
		"another digest":                     {layoutWith(func(l *layout) { l.extra = []entry{{name: blob("other").name, text: "content"}} }), "the content has the digest sha256:"},
		"a strange digest":                   {layoutWith(func(l *layout) { l.extra = []entry{{name: "blobs/md5/00", text: "content"}} }), "the name is no sha256 digest's"},
		"a name twice":                       {layoutWith(func(l *layout) { l.extra = []entry{{name: "index.json", text: "{}"}} }), `entry "index.json": a second entry of this name`},
		"no layer":                           {layoutWith(func(l *layout) { l.without = blob(l.layer).name }), "is missing"},
		"no config":                          {layoutWith(func(l *layout) { l.without = blob(l.config).name }), "is missing"},
		"a foreign layer":                    {layoutWith(func(l *layout) { l.manifest.Layers[0].MediaType = "application/x-helm" }), `has the media type "application/x-helm", and is no file system's`},
		"no image's config":                  {layoutWith(func(l *layout) { l.manifest.Config.MediaType = "application/x" }), `the configuration has the media type "application/x", and is no image's`},
		"another size":                       {layoutWith(func(l *layout) { l.manifest.Layers[0].Size++ }), "and should have"},
		"a layer of a digest that is a path": {layoutWith(func(l *layout) { l.manifest.Layers[0].Digest = "sha256:../../x" }), "invalid layer"},
		"a name that is none": {layoutWith(func(l *layout) {
			l.index.Manifests = []ocispec.Descriptor{{Annotations: map[string]string{ocispec.AnnotationRefName: "a/\x1b[31m"}}}
		}), "image name"},
		"another content": {layoutWith(func(l *layout) {
			l.layer = string(gzipped([]byte("something else")))
			l.manifest.Layers[0] = describe(ocispec.MediaTypeImageLayerGzip, l.layer)
		}), "and the configuration has sha256:"},
		"a layer that is no gzip": {layoutWith(func(l *layout) {
			l.layer = "\x1f\x8b\x08\x00 no such thing"
			l.manifest.Layers[0] = describe(ocispec.MediaTypeImageLayerGzip, l.layer)
		}), `entry "blobs/sha256/`},
		"too many documents": {pack(slices.Repeat([]entry{{name: "x.json", text: "{" + strings.Repeat(" ", 3<<20)}}, 1)[0]), "it has neither"},
		"a sparse layer":     {sparse("l.tar", 1<<50), `entry "l.tar": it is a sparse file`},
		"a layer that begins like a document": {pack(entry{name: "c.json", text: config("{one")}, entry{name: "l.tar", text: "{two"},
			entry{name: "manifest.json", text: `[{"Config":"c.json","Layers":["l.tar"]}]`}), "and the configuration has sha256:"},
		"a document again and again": {layoutWith(func(l *layout) {
			manifest := text(l.manifest) + strings.Repeat(" ", 3<<20)
			l.extra = []entry{blob(manifest)}
			index := text(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: slices.Repeat([]ocispec.Descriptor{describe(ocispec.MediaTypeImageManifest, manifest)}, 900)})
			l.extra = append(l.extra, blob(index))
			l.index.Manifests = []ocispec.Descriptor{describe(ocispec.MediaTypeImageIndex, index)}
		}), "more than 128 MiB of manifests and configurations"},
		"docker, another content": {pack(entry{name: "c.json", text: config("one")}, entry{name: "l.tar", text: "two"},
			entry{name: "manifest.json", text: `[{"Config":"c.json","Layers":["l.tar"]}]`}), "and the configuration has sha256:"},
	} {
		m, err := read(t, c.archive, imagefile.ReadOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) || m.images != nil {
			t.Errorf("%s: got %v, want %q; images %+v", name, err, c.want, m.images)
		}
	}
}

type discard struct{}

func (discard) Layer(*imagefile.Content) error                      { return nil }
func (discard) Finish([]imagefile.Image, imagefile.Documents) error { return nil }

var errFull = errors.New("no space left on device")

// full is an output that has room for n bytes.
type full struct{ n int }

func (f *full) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteToAFullDisk(t *testing.T) {
	t.Parallel()
	for n := range 10 {
		for _, format := range []imagefile.Format{imagefile.OCI, imagefile.Docker, imagefile.Engine} {
			_, err := imagefile.Read(t.Context(), bytes.NewReader(dockerArchive()), imagefile.ReadOptions{}, imagefile.NewWriter(&full{n * 512}, format))
			if !errors.Is(err, errFull) {
				t.Errorf("%s, room for %d bytes: got %v", format, n*512, err)
			}
		}
	}
}

func TestParsePlatform(t *testing.T) {
	t.Parallel()
	p := &ocispec.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	for text, want := range map[string]string{
		"linux/arm64": "true", "arm64": "true", "aarch64": "true", "linux/arm64/v8": "true", "linux/arm64/v9": "false", "amd64": "false", "windows/arm64": "false",
		"": "error", "linux/": "error", "a/b/c/d": "error",
	} {
		takes, err := imagefile.ParsePlatform(text)
		got := "error"
		if err == nil {
			got = fmt.Sprint(takes(p))
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(dockerArchive())
	f.Add(newLayout().pack())
	f.Add(gzipped(newLayout().pack()))
	f.Add(zstded(dockerArchive()))
	f.Fuzz(func(t *testing.T, archive []byte) {
		var out bytes.Buffer
		images, err := imagefile.Read(t.Context(), bytes.NewReader(archive), imagefile.ReadOptions{}, imagefile.NewWriter(&out, imagefile.OCI))
		if err != nil {
			return
		}
		again, err := imagefile.Read(t.Context(), &out, imagefile.ReadOptions{}, discard{})
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if len(again) != len(images) && len(again) == 0 {
			t.Errorf("%d images, and %d before", len(again), len(images))
		}
	})
}

// FuzzDocuments are the documents of an archive that is whole otherwise, of both kinds.
func FuzzDocuments(f *testing.F) {
	layer := string(pack(entry{name: "file", text: "content"}))
	f.Add(text(newLayout().index), config(layer))
	f.Add(`[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l.tar"]}]`, config(layer))
	f.Fuzz(func(t *testing.T, list, document string) {
		for _, name := range []string{"index.json", "manifest.json"} {
			archive := pack(entry{name: name, text: list}, entry{name: "c.json", text: document}, entry{name: "l.tar", text: layer}, blob(document), blob(layer))
			images, err := imagefile.Read(t.Context(), bytes.NewReader(archive), imagefile.ReadOptions{}, discard{})
			if err == nil && len(images) == 0 {
				t.Error("no images and no error")
			}
		}
	})
}
