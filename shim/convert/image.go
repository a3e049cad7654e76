package convert

import (
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// noName is how older engines write "this image has no name".
const noName = "<none>"

// Image is the CRI form of a list entry. Its id is the engine's own id, in
// every message of the shim.
func Image(s image.Summary) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id:          s.ID,
		RepoTags:    named(s.RepoTags),
		RepoDigests: named(s.RepoDigests),
		Size:        size(s.Size),
	}
}

// ImageDetails is the CRI form of an inspected image, which also knows the user.
func ImageDetails(i image.InspectResponse) *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id:          i.ID,
		RepoTags:    named(i.RepoTags),
		RepoDigests: named(i.RepoDigests),
		Size:        size(i.Size),
	}
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
