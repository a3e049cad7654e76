// Command image writes a container image that contains only crishim, in docker load's format, without an engine.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	arch := flag.String("arch", "amd64", "architecture of the program")
	version := flag.String("version", "dev", "tag of the image")
	epoch := flag.Int64("epoch", 0, "time of the image and its files, in seconds since 1970")
	licences := flag.String("licences", ".", "directory with LICENSE and THIRD-PARTY-LICENSES")
	out := flag.String("o", "image.tar", "file to write")
	flag.Parse()
	if err := write(*out, flag.Arg(0), *licences, *arch, *version, time.Unix(*epoch, 0).UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, program, licences, arch, version string, created time.Time) error {
	content, err := files(program, licences, created)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return err
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, Comment: "crishim " + version}})
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = arch, "linux", v1.Time{Time: created}
	config.Config.Entrypoint = []string{"/crishim"}
	config.Config.Env = []string{"PATH=/"}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "crishim", "org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0",
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tag, err := name.NewTag("crishim:" + version)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, tag, image)
}

// files returns the file system of the image. Sockets in the host's /run are looked up in /var/run too.
func files(program, licences string, created time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var errs []error
	add := func(h tar.Header, content []byte) {
		h.ModTime, h.Size, h.Format = created, int64(len(content)), tar.FormatUSTAR
		errs = append(errs, w.WriteHeader(&h))
		_, err := w.Write(content)
		errs = append(errs, err)
	}
	for _, f := range []struct {
		path string
		mode int64
	}{{program, 0o755}, {filepath.Join(licences, "LICENSE"), 0o644}, {filepath.Join(licences, "THIRD-PARTY-LICENSES"), 0o644}} {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		to := filepath.Base(f.path)
		if f.path == program {
			to = "crishim"
		}
		add(tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: f.mode}, content)
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil)
	add(tar.Header{Typeflag: tar.TypeDir, Name: "var/", Mode: 0o755}, nil)
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "var/run", Linkname: "../run", Mode: 0o777}, nil)
	return b.Bytes(), errors.Join(append(errs, w.Close())...)
}
