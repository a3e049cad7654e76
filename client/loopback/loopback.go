// Package loopback serves a registry on 127.0.0.1 while a command runs, for runtimes that can only get images by a
// pull. The registry is go-containerregistry's, read-only and password-protected.
package loopback

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crishim/crishim/internal/imagefile"
)

// User is the user name of the registry. The password keeps other users of the machine from reading the images.
const User = "crishim"

// Pull asks the runtime to pull an image with the password.
type Pull func(ctx context.Context, ref, password string) error

// Load makes the runtime pull images, one platform of each. It returns them with their new names, which begin with the
// registry's address.
func Load(ctx context.Context, images []imagefile.Image, pull Pull) (loaded []imagefile.Image, err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &content{blobs: map[v1.Hash]blob{}, tags: map[string]v1.Hash{}}
	r.Handler = registry.New(registry.WithBlobHandler(r), registry.Logger(log.New(io.Discard, "", 0)))
	var refs []string
	for _, image := range images {
		m := image.Best()
		image.Target, image.Manifests = m.Document, []imagefile.Manifest{m}
		names, err := r.add(image)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		if len(names) == 0 {
			refs = append(refs, l.Addr().String()+"/image@"+m.Digest.String())
		}
		image.Names = nil
		for _, name := range names {
			image.Names = append(image.Names, l.Addr().String()+"/"+name)
		}
		refs, loaded = append(refs, image.Names...), append(loaded, image)
	}
	password := rand.Text()
	server := &http.Server{Handler: guard(r, password), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		err = errors.Join(err, server.Close())
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}()
	for _, ref := range refs {
		if err := pull(ctx, ref, password); err != nil {
			return nil, fmt.Errorf("pull %s: %w", ref, err)
		}
	}
	return loaded, nil
}

// guard requires the password and allows only reads.
func guard(next http.Handler, password string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		user, got, _ := q.BasicAuth()
		switch {
		case user != User || subtle.ConstantTimeCompare([]byte(got), []byte(password)) == 0:
			w.Header().Set("WWW-Authenticate", `Basic realm="crishim"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		case q.Method != http.MethodGet && q.Method != http.MethodHead:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			next.ServeHTTP(w, q)
		}
	})
}

// content is a registry whose layers and configurations come from the images. It implements registry.BlobHandler.
type content struct {
	http.Handler
	blobs map[v1.Hash]blob
	tags  map[string]v1.Hash
}

type blob struct {
	size int64
	open func() (io.ReadCloser, error)
}

// add adds an image with one manifest and returns its names in the registry.
func (c *content) add(image imagefile.Image) (names []string, err error) {
	m := image.Manifests[0]
	c.blobs[m.Config.Digest] = blob{m.Config.Size, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.Config.Text)), nil }}
	for _, l := range m.Layers {
		c.blobs[l.Digest] = blob{l.Size, l.Open}
	}
	if err := c.put("image", m.Digest.String(), m.Document); err != nil {
		return nil, err
	}
	for _, name := range image.Names {
		ref, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			return nil, err
		}
		tagged, ok := reference.TagNameOnly(ref).(reference.Tagged)
		if !ok {
			return nil, fmt.Errorf("%s has no tag", name)
		}
		name := reference.Path(ref) + ":" + tagged.Tag()
		if other, taken := c.tags[name]; taken && other != m.Digest {
			return nil, fmt.Errorf("%s of two registries are two images, and this runtime can load only one of them", name)
		}
		c.tags[name] = m.Digest
		if err := c.put(reference.Path(ref), tagged.Tag(), m.Document); err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// put stores a manifest directly, not through the guard.
func (c *content) put(repository, tag string, d imagefile.Document) error {
	q := httptest.NewRequest(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, bytes.NewReader(d.Text))
	q.Header.Set("Content-Type", string(d.MediaType))
	answer := httptest.NewRecorder()
	if c.ServeHTTP(answer, q); answer.Code != http.StatusCreated {
		return fmt.Errorf("the loopback registry refuses the manifest: %s", strings.TrimSpace(answer.Body.String()))
	}
	return nil
}

func (c *content) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	b, ok := c.blobs[h]
	if !ok {
		return 0, registry.ErrNotFound
	}
	return b.size, nil
}

func (c *content) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	b, ok := c.blobs[h]
	if !ok {
		return nil, registry.ErrNotFound
	}
	return b.open()
}
