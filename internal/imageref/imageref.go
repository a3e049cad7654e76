// Package imageref compares and completes image names by docker's rules: the short name busybox means
// docker.io/library/busybox. Full adds the tag latest to a name without a tag. Matches accepts such a name for any tag.
package imageref

import (
	"errors"

	"github.com/distribution/reference"
)

// Matches reports whether wanted is the same image name as name, or only its registry and repository.
func Matches(name, wanted string) bool {
	known, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return false // <none>:<none>
	}
	want, err := reference.ParseNormalizedNamed(wanted)
	return err == nil && (want.String() == known.String() || reference.IsNameOnly(want) && want.Name() == known.Name())
}

// SameRepository reports whether two names have the same registry and repository. Tags and digests may differ.
func SameRepository(a, b string) bool {
	one, err := reference.ParseNormalizedNamed(a)
	if err != nil {
		return false
	}
	other, err := reference.ParseNormalizedNamed(b)
	return err == nil && one.Name() == other.Name()
}

// Full returns the full form of a name, with registry and tag, as runtimes store it. It fails for a name with a digest.
func Full(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", err
	}
	if _, digested := named.(reference.Digested); digested {
		return "", errors.New("a name with a digest cannot be given to an image")
	}
	return reference.TagNameOnly(named).String(), nil
}

// Familiar returns a name as docker displays it: without docker.io, and without library in docker.io.
func Familiar(name string) string {
	if ref, err := reference.ParseNormalizedNamed(name); err == nil {
		return reference.FamiliarString(ref)
	}
	return name
}
