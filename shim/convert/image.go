package convert

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image converts a list entry. An image's id is the engine's own in every message.
func Image(s image.Summary) *runtimeapi.Image {
	return newImage(s.ID, s.RepoTags, s.RepoDigests, s.Size)
}

// ImageDetails converts an inspected image, which also has the user.
func ImageDetails(i image.InspectResponse) *runtimeapi.Image {
	out := newImage(i.ID, i.RepoTags, i.RepoDigests, i.Size)
	if i.Config != nil {
		out.Uid, out.Username = ImageUser(i.Config.User)
	}
	return out
}

// newImage sorts tags from digests. An engine with containerd's image store has the digest
// of an image that it pulled among the tags, too, and that of one with several tags several
// times. The size must be positive in the CRI; an image without layers has 0.
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

// named leaves out "<none>", which older engines write for an image without a name.
func named(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.HasPrefix(n, "<none>") })
}

// ImageUser splits an image's "user[:group]": a number is a uid, anything else
// a name, and nothing is root.
func ImageUser(spec string) (*runtimeapi.Int64Value, string) {
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

// ImageRef returns an image's reference with a digest, that of the repository that was asked for where it has several;
// its id where it has none.
func ImageRef(id, asked string, repoDigests []string) string {
	digests := named(repoDigests)
	if want, err := reference.ParseNormalizedNamed(asked); err == nil {
		for _, d := range digests {
			if ref, err := reference.ParseNormalizedNamed(d); err == nil && ref.Name() == want.Name() {
				return d
			}
		}
	}
	return append(digests, id)[0]
}

// RegistryAuth returns the engine's registry authentication header, "" for no credentials.
// The CRI's auth field is "user:password" in base64, for when both fields are empty.
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

// splitAuth has no part of the text in its errors: it is a secret.
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
