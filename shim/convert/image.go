package convert

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/imageref"
)

func Image(s image.Summary) *runtimeapi.Image {
	return newImage(s.ID, s.RepoTags, s.RepoDigests, s.Size)
}

func ImageDetails(i image.InspectResponse) *runtimeapi.Image {
	out := newImage(i.ID, i.RepoTags, i.RepoDigests, i.Size)
	if i.Config != nil {
		out.Uid, out.Username = imageUser(i.Config.User)
	}
	return out
}

// newImage separates tags from digests, because containerd's image store lists digests among the tags. CRI requires a
// positive size.
func newImage(id string, tags, digests []string, size int64) *runtimeapi.Image {
	out := &runtimeapi.Image{Id: id, Size: uint64(max(size, 1))}
	for _, name := range slices.Concat(named(digests), named(tags)) {
		switch {
		case !strings.Contains(name, "@"):
			out.RepoTags = append(out.RepoTags, name)
		case !slices.Contains(out.RepoDigests, name):
			out.RepoDigests = append(out.RepoDigests, name)
		}
	}
	return out
}

func named(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, "<none>") })
}

// imageUser parses "user[:group]". An empty user means root.
func imageUser(spec string) (*runtimeapi.Int64Value, string) {
	name, _, _ := strings.Cut(spec, ":")
	if name == "" {
		return nil, ""
	}
	uid, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return nil, name
	}
	return &runtimeapi.Int64Value{Value: uid}, ""
}

// ImageRef returns a repository digest, preferably of the repository in asked, otherwise the id.
func ImageRef(id, asked string, repoDigests []string) string {
	digests := named(repoDigests)
	for _, d := range digests {
		if imageref.SameRepository(d, asked) {
			return d
		}
	}
	return append(digests, id)[0]
}

// RegistryAuth returns the engine's auth header, or "" without credentials. CRI's auth field is base64 of
// "user:password".
func RegistryAuth(a *runtimeapi.AuthConfig) (string, error) {
	out := registry.AuthConfig{
		Username:      a.GetUsername(),
		Password:      a.GetPassword(),
		ServerAddress: a.GetServerAddress(),
		IdentityToken: a.GetIdentityToken(),
		RegistryToken: a.GetRegistryToken(),
	}
	if out.Username == "" && out.Password == "" && a.GetAuth() != "" {
		user, password, err := splitAuth(a.GetAuth())
		if err != nil {
			return "", err
		}
		out.Username, out.Password = user, password
	}
	if out == (registry.AuthConfig{}) || out == (registry.AuthConfig{ServerAddress: out.ServerAddress}) {
		return "", nil
	}
	header, err := registry.EncodeAuthConfig(out)
	if err != nil {
		return "", fmt.Errorf("registry credentials: %w", err)
	}
	return header, nil
}

// splitAuth decodes the auth field. Errors do not contain it, because it is secret.
func splitAuth(text string) (user, password string, err error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimRight(text, "\x00\n"))
	if err != nil {
		return "", "", fmt.Errorf("auth is not base64: %w", errdefs.ErrInvalidArgument)
	}
	user, password, ok := strings.Cut(string(b), ":")
	if !ok || user == "" {
		return "", "", fmt.Errorf("auth is not base64 of user:password: %w", errdefs.ErrInvalidArgument)
	}
	return user, strings.TrimRight(password, "\x00"), nil
}
