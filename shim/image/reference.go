package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
)

// inspect resolves any reference; found is false where the engine has no such image.
func inspect(ctx context.Context, e inspector, ref string) (i image.InspectResponse, found bool, err error) {
	if ref == "" {
		return i, false, fmt.Errorf("the image reference is empty: %w", errdefs.ErrInvalidArgument)
	}
	err = untilRemoved(ctx, func() (bool, error) {
		i, err = e.ImageInspect(ctx, engineReference(ref))
		return err == nil || !strings.Contains(err.Error(), "layer does not exist"), err
	})
	switch {
	case errdefs.IsNotFound(err):
		return i, false, nil
	case err != nil:
		return i, false, fmt.Errorf("inspect image %s: %w", ref, err)
	case i.ID == "":
		return i, false, fmt.Errorf("inspect image %s: the engine gave no id: %w", ref, errdefs.ErrInternal)
	}
	return i, true, nil
}

// engineReference leaves out the tag where a digest stands beside it: the
// digest decides, and the engine's store knows images under either, not both.
func engineReference(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref
	}
	digested, ok := named.(reference.Canonical)
	if !ok {
		return ref
	}
	plain, err := reference.WithDigest(reference.TrimNamed(named), digested.Digest())
	if err != nil {
		return ref
	}
	return plain.String()
}

// matches says whether an image answers to a list filter: an id or the start of
// one, a name with or without tag or digest, or a pattern such as "*/pause".
func matches(s image.Summary, filter string) bool {
	hex := strings.TrimPrefix(s.ID, "sha256:")
	if short := strings.TrimPrefix(filter, "sha256:"); short != "" && strings.HasPrefix(hex, short) {
		return true
	}
	fits := func(name string) bool { return mayMatch(name, filter) && nameMatches(name, engineReference(filter)) }
	return slices.ContainsFunc(s.RepoTags, fits) || slices.ContainsFunc(s.RepoDigests, fits)
}

// mayMatch is false for most names that a filter does not mean, without taking
// either apart, which costs more than all else in a long list: whatever forms
// the two have, they agree in the last part of the path. A pattern may mean any.
func mayMatch(name, filter string) bool {
	if strings.ContainsAny(filter, `*?[\`) {
		return true
	}
	path, _, _ := strings.Cut(filter, "@")
	last, _, _ := strings.Cut(path[strings.LastIndexByte(path, '/')+1:], ":")
	return strings.Contains(name, last)
}

func nameMatches(name, wanted string) bool {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return false // <none>:<none>
	}
	if want, err := reference.ParseNormalizedNamed(wanted); err == nil {
		if want.String() == ref.String() || reference.IsNameOnly(want) && want.Name() == ref.Name() {
			return true
		}
	}
	for _, pattern := range []string{wanted, strings.TrimPrefix(wanted, "docker.io/")} {
		if ok, err := reference.FamiliarMatch(pattern, ref); err == nil && ok {
			return true
		}
	}
	return false
}
