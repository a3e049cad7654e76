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
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/crishim/crishim/internal/imagefile"
)

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

// sparse returns an archive with a file of n zeros that GNU tar stores in two blocks of 512 bytes.
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

const refName = "org.opencontainers.image.ref.name"

func hash(content string) v1.Hash {
	h, _, err := v1.SHA256(strings.NewReader(content))
	if err != nil {
		panic(err)
	}
	return h
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func config(layers ...string) string {
	c := v1.ConfigFile{OS: "linux", Architecture: "amd64"}
	c.RootFS.Type = "layers"
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, hash(l))
	}
	return text(c)
}

// dockerArchive returns an image as old engines save it: with other layer names, and the second layer as a link to the
// first.
func dockerArchive() []byte {
	layer := string(pack(entry{name: "file", text: "content"}))
	return pack(entry{name: "one/VERSION", text: "1.0"}, entry{name: "one/json", text: "{}"}, entry{name: "one/layer.tar", text: layer},
		entry{name: "two/layer.tar", link: "../one/layer.tar"},
		entry{name: "config.json", text: config(layer, layer)},
		entry{name: "manifest.json", text: `[{"Config":"config.json","RepoTags":["app:1","example.com/app:2"],"Layers":["one/layer.tar","two/layer.tar"]}]`})
}

// layout is an OCI layout with one image. change is called before digests are computed.
type layout struct {
	layer, config string
	manifest      v1.Manifest
	index         v1.IndexManifest
	extra         []entry
	without       string // entry to omit
}

func newLayout() *layout {
	unpacked := pack(entry{name: "file", text: "content"})
	l := &layout{layer: string(gzipped(unpacked)), config: config(string(unpacked))}
	l.manifest = v1.Manifest{
		MediaType: types.OCIManifestSchema1,
		Config:    describe(types.OCIConfigJSON, l.config),
		Layers:    []v1.Descriptor{describe(types.OCILayer, l.layer)},
	}
	return l
}

func describe(mediaType types.MediaType, content string) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Digest: hash(content), Size: int64(len(content))}
}

func blob(content string) entry {
	return entry{name: "blobs/sha256/" + hash(content).Hex, text: content}
}

func (l *layout) pack() []byte {
	manifest := text(l.manifest)
	d := describe(types.OCIManifestSchema1, manifest)
	d.Annotations = map[string]string{refName: "example.com/app:1"}
	if l.index.Manifests == nil {
		l.index.Manifests = []v1.Descriptor{d}
	}
	entries := append([]entry{{name: "oci-layout", text: `{"imageLayoutVersion":"1.0.0"}`}, blob(l.layer), blob(l.config), blob(manifest), {name: "index.json", text: text(l.index)}}, l.extra...)
	return pack(slices.DeleteFunc(entries, func(e entry) bool { return e.name == l.without })...)
}

// content is the result of reading an archive: layers by digest, and images.
type content struct {
	layers map[v1.Hash]string
	images []imagefile.Image
}

func read(t *testing.T, archive []byte, o imagefile.Options) (*content, error) {
	t.Helper()
	a, err := imagefile.Open(t.Context(), bytes.NewReader(archive), o)
	if err != nil {
		return &content{}, err
	}
	t.Cleanup(func() { _ = a.Close() })
	c := &content{layers: map[v1.Hash]string{}, images: a.Images}
	for _, image := range a.Images {
		for _, m := range image.Manifests {
			for _, l := range m.Layers {
				r, err := l.Open()
				if err != nil {
					return c, err
				}
				text, err := io.ReadAll(r)
				if err := errors.Join(err, r.Close()); err != nil {
					return c, err
				}
				c.layers[l.Digest] = string(text)
			}
		}
	}
	return c, nil
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{
		"docker": dockerArchive(), "docker gzip": gzipped(dockerArchive()), "docker zstd": zstded(dockerArchive()),
		"oci": newLayout().pack(), "oci gzip": gzipped(newLayout().pack()), "oci zstd": zstded(newLayout().pack()),
	} {
		m, err := read(t, archive, imagefile.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []string{"example.com/app:1"}
		if strings.HasPrefix(name, "docker") {
			want = []string{"docker.io/library/app:1", "example.com/app:2"}
		}
		if len(m.images) != 1 || !slices.Equal(m.images[0].Names, want) || len(m.layers) != 1 {
			t.Errorf("%s: %d images with %d layers", name, len(m.images), len(m.layers))
		}
	}
}

// TestWrite reads the written archive in both formats and compares digests.
func TestWrite(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{"docker": dockerArchive(), "oci": newLayout().pack()} {
		first, err := read(t, archive, imagefile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []imagefile.Format{imagefile.OCI, imagefile.Docker} {
			var out bytes.Buffer
			if err := imagefile.Write(&out, format, first.images); err != nil {
				t.Fatal(err)
			}
			again, err := read(t, out.Bytes(), imagefile.Options{})
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
		}
	}
}

// TestWriteZstd checks that zstd layers are decompressed for old engines.
func TestWriteZstd(t *testing.T) {
	t.Parallel()
	unpacked := pack(entry{name: "file", text: "content"})
	l := newLayout()
	l.layer = string(zstded(unpacked))
	l.manifest.Layers[0] = describe(types.OCILayerZStd, l.layer)
	first, err := read(t, l.pack(), imagefile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := imagefile.Write(&out, imagefile.Docker, first.images); err != nil {
		t.Fatal(err)
	}
	again, err := read(t, out.Bytes(), imagefile.Options{})
	if err != nil || again.layers[hash(string(unpacked))] != string(unpacked) {
		t.Errorf("got %d layers, %v", len(again.layers), err)
	}
}

// A plain file is read in place from the caller's offset. No copy is written.
func TestOpenAFileInItsPlace(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append([]byte("before it"), dockerArchive()...)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(int64(len("before it")), io.SeekStart); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", "/dev/null")
	a, err := imagefile.Open(t.Context(), f, imagefile.Options{})
	if err != nil || len(a.Images) != 1 {
		t.Fatal(err)
	}
	if err := imagefile.Write(io.Discard, imagefile.OCI, a.Images); err != nil {
		t.Error(err)
	}
}

func TestReadOptions(t *testing.T) {
	t.Parallel()
	m, err := read(t, dockerArchive(), imagefile.Options{As: "docker.io/library/other:1"})
	if err != nil || !slices.Equal(m.images[0].Names, []string{"docker.io/library/other:1"}) {
		t.Errorf("--as: %+v, %v", m.images, err)
	}
	// Some tools repeat an image for each of its names.
	layer := string(pack(entry{name: "file", text: "content"}))
	for name, archive := range map[string][]byte{
		"docker": pack(entry{name: "c.json", text: config(layer)}, entry{name: "l.tar", text: layer}, entry{name: "manifest.json", text: `[
			{"Config":"c.json","RepoTags":["a:1"],"Layers":["l.tar"]}, {"Config":"c.json","RepoTags":["b:1","a:1"],"Layers":["l.tar"]}]`}),
		"oci": func() []byte {
			l := newLayout()
			for _, name := range []string{"a:1", "b:1", "a:1"} {
				d := describe(types.OCIManifestSchema1, text(l.manifest))
				d.Annotations = map[string]string{refName: name}
				l.index.Manifests = append(l.index.Manifests, d)
			}
			return l.pack()
		}(),
	} {
		m, err := read(t, archive, imagefile.Options{})
		if err != nil || len(m.images) != 1 || !slices.Equal(m.images[0].Names, []string{"docker.io/library/a:1", "docker.io/library/b:1"}) {
			t.Errorf("%s: %+v, %v", name, m.images, err)
		}
	}
	arm, err := imagefile.ParsePlatform("linux/arm64")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := read(t, newLayout().pack(), imagefile.Options{Platform: arm}); err == nil || !strings.Contains(err.Error(), "is for other platforms") || m.images != nil {
		t.Errorf("another platform: %+v, %v", m.images, err)
	}
}

// containerd's tools export an image that was pulled by digest under that digest. This is not a usable name.
func TestReadNamesOfDigests(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker.io/library/busybox@" + hash("x").String(), hash("x").String()} {
		l := newLayout()
		d := describe(types.OCIManifestSchema1, text(l.manifest))
		d.Annotations = map[string]string{"io.containerd.image.name": name}
		l.index.Manifests = []v1.Descriptor{d}
		if m, err := read(t, l.pack(), imagefile.Options{}); err != nil || len(m.images) != 1 || len(m.images[0].Names) > 0 {
			t.Errorf("%s: images %+v, %v", name, m.images, err)
		}
	}
}

// An index keeps its digest even if the archive lacks the manifest of another platform.
func TestReadIndexOfSeveralPlatforms(t *testing.T) {
	t.Parallel()
	l := newLayout()
	manifest := text(l.manifest)
	there, absent := describe(types.OCIManifestSchema1, manifest), describe(types.OCIManifestSchema1, "elsewhere")
	absent.Platform = &v1.Platform{OS: "linux", Architecture: "arm64"}
	index := text(v1.IndexManifest{MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{absent, there}})
	l.extra = []entry{blob(index)}
	d := describe(types.OCIImageIndex, index)
	l.index.Manifests = []v1.Descriptor{d}
	m, err := read(t, l.pack(), imagefile.Options{})
	if err != nil || len(m.images) != 1 || m.images[0].Target.Digest != d.Digest || len(m.images[0].Manifests) != 1 {
		t.Errorf("images %+v, %v", m.images, err)
	}
}

// Thousands of links with long names use little memory, because the total length of names is limited.
func TestReadBoundsNames(t *testing.T) {
	t.Parallel()
	var links []entry
	for i := range 9000 {
		links = append(links, entry{name: fmt.Sprint(i), link: strings.Repeat("x", 4000)})
	}
	if _, err := read(t, pack(links...), imagefile.Options{}); err == nil || !strings.Contains(err.Error(), "more than 32 MiB of names") {
		t.Errorf("got %v", err)
	}
}

// A manifest that an index repeats is read once. A manifest that docker's list repeats counts towards a limit.
func TestReadDocumentsAgainAndAgain(t *testing.T) {
	t.Parallel()
	l := newLayout()
	manifest := text(l.manifest) + strings.Repeat(" ", 3<<20)
	index := text(v1.IndexManifest{Manifests: slices.Repeat([]v1.Descriptor{describe(types.OCIManifestSchema1, manifest)}, 900)})
	l.extra = []entry{blob(manifest), blob(index)}
	l.index.Manifests = []v1.Descriptor{describe(types.OCIImageIndex, index)}
	if c, err := read(t, l.pack(), imagefile.Options{}); err != nil || len(c.images) != 1 || len(c.images[0].Manifests) != 1 {
		t.Errorf("%d images, %v", len(c.images), err)
	}
	layer := string(pack(entry{name: "file", text: "content"}))
	list := slices.Repeat([]map[string]any{{"Config": "c.json", "Layers": []string{"l.tar"}}}, 900)
	archive := pack(entry{name: "c.json", text: config(layer) + strings.Repeat(" ", 3<<20)}, entry{name: "l.tar", text: layer}, entry{name: "manifest.json", text: text(list)})
	if _, err := read(t, archive, imagefile.Options{}); err == nil || !strings.Contains(err.Error(), "more than 128 MiB of manifests and configurations") {
		t.Errorf("got %v", err)
	}
}

// TestReadRefuses checks that invalid archives are rejected with the reason.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	layoutWith := func(change func(*layout)) []byte {
		l := newLayout()
		change(l)
		return l.pack()
	}
	whole := newLayout().pack()
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"nothing":            {nil, "the archive is empty"},
		"no tar":             {bytes.Repeat([]byte("text "), 1000), "this is no tar archive"},
		"a file system":      {pack(entry{name: "bin/app", text: "x"}), "it has neither"},
		"no image":           {pack(entry{name: "app.tar", text: "x"}), "it has neither index.json nor manifest.json"},
		"truncated":          {whole[:1546], "the archive is truncated"},
		"truncated gzip":     {gzipped(whole)[:300], "the archive is truncated"},
		"out of the archive": {pack(entry{name: "../../etc/passwd", text: "x"}), "it has neither"},
		"absolute":           {pack(entry{name: "/etc/passwd", text: "x"}), "it has neither"},
		"a link out":         {pack(entry{name: "a/layer.tar", link: "../../etc/passwd"}), "it has neither"},
		"an absolute link":   {pack(entry{name: "a/layer.tar", link: "/etc/passwd"}), "it has neither"},
		"a loop of links": {pack(entry{name: "a.tar", link: "b.tar"}, entry{name: "b.tar", link: "a.tar"}, entry{name: "c.json", text: config("x")},
			entry{name: "manifest.json", text: `[{"Config":"c.json","Layers":["a.tar"]}]`}), `the layer "a.tar" is missing`},
		"another digest": {layoutWith(func(l *layout) {
			name := blob(l.layer).name
			l.without, l.extra = name, []entry{{name: "./" + name, text: strings.Repeat("x", len(l.layer))}}
		}), "the content has the digest sha256:"},
		"a name twice":                       {layoutWith(func(l *layout) { l.extra = []entry{{name: "index.json", text: "{}"}} }), `entry "index.json": a second entry of this name`},
		"no layer":                           {layoutWith(func(l *layout) { l.without = blob(l.layer).name }), "is missing"},
		"no config":                          {layoutWith(func(l *layout) { l.without = blob(l.config).name }), "is missing"},
		"a foreign layer":                    {layoutWith(func(l *layout) { l.manifest.Layers[0].MediaType = "application/x-helm" }), `has the media type "application/x-helm", and is no file system's`},
		"no image's config":                  {layoutWith(func(l *layout) { l.manifest.Config.MediaType = "application/x" }), `the configuration has the media type "application/x", and is no image's`},
		"another size":                       {layoutWith(func(l *layout) { l.manifest.Layers[0].Size++ }), "and should have"},
		"a layer of a digest that is a path": {layoutWith(func(l *layout) { l.manifest.Layers[0].Digest.Hex = "../../x" }), "non-hex character"},
		"a layer of another digest": {layoutWith(func(l *layout) {
			l.manifest.Layers[0].Digest = v1.Hash{Algorithm: "sha512", Hex: strings.Repeat("0", 128)}
		}), "is no sha256 digest"},
		"a manifest with manifests": {layoutWith(func(l *layout) {
			m := strings.Replace(text(l.manifest), "{", `{"manifests":[{}],`, 1)
			l.extra = []entry{blob(m)}
			l.index.Manifests = []v1.Descriptor{describe(types.OCIManifestSchema1, m)}
		}), "must not have both manifests and layers"},
		"an index with layers": {layoutWith(func(l *layout) {
			index := strings.Replace(text(v1.IndexManifest{Manifests: []v1.Descriptor{describe(types.OCIManifestSchema1, text(l.manifest))}}), "{", `{"layers":[{}],`, 1)
			l.extra = []entry{blob(index)}
			l.index.Manifests = []v1.Descriptor{describe(types.OCIImageIndex, index)}
		}), "must not have both manifests and layers"},
		"another media type":    {layoutWith(func(l *layout) { l.manifest.MediaType = types.DockerManifestSchema2 }), `its media type is "application/vnd.docker.distribution.manifest.v2+json", and must be`},
		"a long name":           {pack(entry{name: strings.Repeat("x", 4097), text: "x"}), "a name of more than 4096 bytes"},
		"a long name of a link": {pack(entry{name: "x", link: strings.Repeat("x", 1<<19)}), "a name of more than 4096 bytes"},
		"a document of commas":  {pack(entry{name: "manifest.json", text: "[{}" + strings.Repeat(",{}", 1<<20) + "]"}), "has more than 200000 values"},
		"xz":                    {[]byte("\xfd7zXZ\x00 and more"), "it is compressed by xz, and must be plain or compressed by gzip or zstd"},
		"bzip2":                 {[]byte("BZh91AY&SY and more"), "it is compressed by bzip2, and must be plain or compressed by gzip or zstd"},
		"a name that is none": {layoutWith(func(l *layout) {
			d := describe(types.OCIManifestSchema1, text(l.manifest))
			d.Annotations = map[string]string{refName: "a/\x1b[31m"}
			l.index.Manifests = []v1.Descriptor{d}
		}), "image name"},
		"another content": {layoutWith(func(l *layout) {
			l.layer = string(gzipped([]byte("something else")))
			l.manifest.Layers[0] = describe(types.OCILayer, l.layer)
		}), "and the configuration has sha256:"},
		"a layer that is no gzip": {layoutWith(func(l *layout) {
			l.layer = "\x1f\x8b\x08\x00 no such thing"
			l.manifest.Layers[0] = describe(types.OCILayer, l.layer)
		}), "corrupt input"},
		"too many documents": {pack(slices.Repeat([]entry{{name: "x.json", text: "{" + strings.Repeat(" ", 3<<20)}}, 1)[0]), "it has neither"},
		"a sparse layer":     {sparse("l.tar", 1<<50), `entry "l.tar": it is a sparse file`},
		"docker, another content": {pack(entry{name: "c.json", text: config("one")}, entry{name: "l.tar", text: "two"},
			entry{name: "manifest.json", text: `[{"Config":"c.json","Layers":["l.tar"]}]`}), "the content has the digest sha256:"},
	} {
		m, err := read(t, c.archive, imagefile.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || m.images != nil {
			t.Errorf("%s: got %v, want %q; %d images", name, err, c.want, len(m.images))
		}
	}
}

var errFull = errors.New("no space left on device")

type full struct{ n int }

func (f *full) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteToAFullDisk(t *testing.T) {
	t.Parallel()
	c, err := read(t, dockerArchive(), imagefile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		for _, format := range []imagefile.Format{imagefile.OCI, imagefile.Docker} {
			if err := imagefile.Write(&full{n * 512}, format, c.images); !errors.Is(err, errFull) {
				t.Errorf("%s, room for %d bytes: got %v", format, n*512, err)
			}
		}
	}
}

func TestParsePlatform(t *testing.T) {
	t.Parallel()
	p := v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	for text, want := range map[string]string{
		"linux/arm64": "true", "arm64": "true", "aarch64": "true", "linux/arm64/v8": "true", "linux/arm64/v9": "false", "amd64": "false", "windows/arm64": "false",
		"": "error", "linux/": "error", "a/b/c/d": "error",
	} {
		wanted, err := imagefile.ParsePlatform(text)
		got := "error"
		if err == nil {
			got = fmt.Sprint(p.Satisfies(*wanted))
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
		a, err := imagefile.Open(t.Context(), bytes.NewReader(archive), imagefile.Options{})
		if err != nil {
			return
		}
		defer a.Close()
		var out bytes.Buffer
		if err := imagefile.Write(&out, imagefile.OCI, a.Images); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := imagefile.Open(t.Context(), &out, imagefile.Options{})
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if len(again.Images) != len(a.Images) {
			t.Errorf("%d images, and %d before", len(again.Images), len(a.Images))
		}
		_ = again.Close()
	})
}

// FuzzDocuments mutates the documents of otherwise valid archives, in both formats.
func FuzzDocuments(f *testing.F) {
	layer := string(pack(entry{name: "file", text: "content"}))
	f.Add(text(newLayout().index), config(layer))
	f.Add(`[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l.tar"]}]`, config(layer))
	f.Fuzz(func(t *testing.T, list, document string) {
		for _, name := range []string{"index.json", "manifest.json"} {
			archive := pack(entry{name: name, text: list}, entry{name: "c.json", text: document}, entry{name: "l.tar", text: layer}, blob(document), blob(layer))
			a, err := imagefile.Open(t.Context(), bytes.NewReader(archive), imagefile.Options{})
			if err == nil && len(a.Images) == 0 {
				t.Error("no images and no error")
			}
		}
	})
}
