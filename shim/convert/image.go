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
)

// noName is how older engines write "this image has no name".
const noName = "<none>"

// Image is the CRI form of a list entry. Its id is the engine's own id, in
// every message of the shim.
func Image(s image.Summary) *runtimeapi.Image {
	tags, digests := names(s.RepoTags, s.RepoDigests)
	return &runtimeapi.Image{Id: s.ID, RepoTags: tags, RepoDigests: digests, Size: size(s.Size)}
}

// ImageDetails is the CRI form of an inspected image, which also knows the user.
func ImageDetails(i image.InspectResponse) *runtimeapi.Image {
	tags, digests := names(i.RepoTags, i.RepoDigests)
	out := &runtimeapi.Image{Id: i.ID, RepoTags: tags, RepoDigests: digests, Size: size(i.Size)}
	if i.Config != nil {
		out.Uid, out.Username = ImageUser(i.Config.User)
	}
	return out
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

// ImageRef is the digested reference of an image where it has one, else its id.
func ImageRef(id string, repoDigests []string) string {
	if ds := named(repoDigests); len(ds) > 0 {
		return ds[0]
	}
	return id
}

// names are an image's tags and digests. An engine with containerd's image store has
// the digest of an image that was pulled by it among the tags as well, and the digest
// of one with several tags several times.
func names(tags, digests []string) (onlyTags, allDigests []string) {
	for _, name := range slices.Concat(named(digests), named(tags)) {
		switch {
		case !strings.Contains(name, "@"):
			onlyTags = append(onlyTags, name)
		case !slices.Contains(allDigests, name):
			allDigests = append(allDigests, name)
		}
	}
	return onlyTags, allDigests
}

// named drops the names that say there is no name.
func named(names []string) []string {
	var out []string
	for _, n := range names {
		if !strings.HasPrefix(n, noName) {
			out = append(out, n)
		}
	}
	return out
}

// size must be positive in the CRI; an image without layers has size 0.
func size(n int64) uint64 {
	return uint64(max(n, 1))
}

// RegistryAuth is the value of the engine's registry authentication header,
// "" for no credentials. The CRI's auth field is "user:password" in base64 and
// counts where user name and password are not given.
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

// splitAuth names no part of what it was given: it is a secret.
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
