// Package loopback is a registry on 127.0.0.1 for the length of a command: the way into a runtime that has no other
// than to pull. It is not for pushing.
package loopback

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/crishim/crishim/imagefile"
)

// User is whom the registry wants a password of: what is in an image is not for everybody on the machine.
const User = "crishim"

// Pull has the runtime pull an image with the password.
type Pull func(ctx context.Context, ref, password string) error

// Load calls copy with a sink and then has the runtime pull what is there. It returns the images by the names
// that they have now, which begin with the registry's address. The layers are on disk meanwhile, in a file
// without a name.
func Load(ctx context.Context, copy func(imagefile.Sink) ([]imagefile.Image, error), pull Pull) (images []imagefile.Image, err error) {
	file, err := imagefile.TempFile()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r := &registry{file: file, layers: map[digest.Digest]*io.SectionReader{}, tags: map[string]digest.Digest{}, types: map[digest.Digest]string{}, password: rand.Text()}
	images, err = copy(r)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		err = errors.Join(err, server.Close())
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}()
	for i := range images {
		image := &images[i]
		refs, err := r.name(image, l.Addr().String())
		if err != nil {
			return nil, err
		}
		for _, ref := range refs {
			if err := pull(ctx, ref, r.password); err != nil {
				return nil, fmt.Errorf("pull %s: %w", ref, err)
			}
		}
	}
	return images, nil
}

// registry is the read-only part of the distribution API. It is a Sink until it serves.
type registry struct {
	file      *os.File
	end       int64 // of the file
	layers    map[digest.Digest]*io.SectionReader
	documents imagefile.Documents
	types     map[digest.Digest]string // of manifests and indexes
	tags      map[string]digest.Digest // by path:tag
	password  string
}

// Layer implements imagefile.Sink.
func (r *registry) Layer(c *imagefile.Content) error {
	if _, there := r.layers[c.Digest]; there {
		return nil
	}
	n, err := io.Copy(io.NewOffsetWriter(r.file, r.end), struct{ io.Reader }{c})
	if err != nil {
		return err
	}
	r.layers[c.Digest] = io.NewSectionReader(r.file, r.end, n)
	r.end += n
	return nil
}

// Finish implements imagefile.Sink.
func (r *registry) Finish(images []imagefile.Image, documents imagefile.Documents) error {
	r.documents = documents
	for _, image := range images {
		r.types[image.Target.Digest] = image.Target.MediaType
		for _, m := range image.Manifests {
			r.types[m.Digest] = m.MediaType
		}
	}
	return nil
}

// name replaces the registry in an image's names, and returns what to pull.
func (r *registry) name(image *imagefile.Image, address string) ([]string, error) {
	if len(image.Names) == 0 {
		return []string{address + "/image@" + image.Target.Digest.String()}, nil
	}
	var names []string
	for _, name := range image.Names {
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			return nil, err
		}
		tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
		if !ok {
			return nil, fmt.Errorf("%s has no tag", name)
		}
		local := reference.Path(named) + ":" + tagged.Tag()
		if other, taken := r.tags[local]; taken && other != image.Target.Digest {
			return nil, fmt.Errorf("%s of two registries are two images, and this runtime can load only one of them", local)
		}
		r.tags[local] = image.Target.Digest
		names = append(names, address+"/"+local)
	}
	image.Names = names
	return names, nil
}

// ServeHTTP implements http.Handler.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	user, password, _ := q.BasicAuth()
	if user != User || subtle.ConstantTimeCompare([]byte(password), []byte(r.password)) == 0 {
		w.Header().Set("WWW-Authenticate", `Basic realm="crishim"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		return
	}
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	path, ok := strings.CutPrefix(q.URL.Path, "/v2/")
	if ok && path == "" {
		return
	}
	if repository, ref, found := cutLast(path, "/manifests/"); found {
		id := digest.Digest(ref)
		if tag, known := r.tags[repository+":"+ref]; known {
			id = tag
		}
		if mediaType, known := r.types[id]; known {
			w.Header().Set("Content-Type", mediaType)
			r.serve(w, q, id, bytes.NewReader(r.documents[id]))
			return
		}
	} else if _, ref, found := cutLast(path, "/blobs/"); found {
		id := digest.Digest(ref)
		w.Header().Set("Content-Type", "application/octet-stream")
		if layer, known := r.layers[id]; known {
			r.serve(w, q, id, io.NewSectionReader(layer, 0, layer.Size()))
			return
		}
		if text, known := r.documents[id]; known {
			r.serve(w, q, id, bytes.NewReader(text))
			return
		}
	}
	http.Error(w, `{"errors":[{"code":"NOT_FOUND"}]}`, http.StatusNotFound)
}

func (r *registry) serve(w http.ResponseWriter, q *http.Request, id digest.Digest, content io.ReadSeeker) {
	w.Header().Set("Docker-Content-Digest", id.String())
	w.Header().Set("Etag", strconv.Quote(id.String()))
	http.ServeContent(w, q, "", time.Time{}, content)
}

func cutLast(path, sep string) (before, after string, found bool) {
	i := strings.LastIndex(path, sep)
	if i < 0 {
		return "", "", false
	}
	return path[:i], path[i+len(sep):], true
}

var _ imagefile.Sink = (*registry)(nil)
