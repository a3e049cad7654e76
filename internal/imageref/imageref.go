// Package imageref compares and completes names of images. A short name stands for one of docker.io/library, and a name
// without a tag for the tag latest.
package imageref

import (
	"errors"

	"github.com/distribution/reference"
)

// Matches reports whether wanted means the image called name: it is the same name, or the name's repository.
func Matches(name, wanted string) bool {
	known, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return false // <none>:<none>
	}
	want, err := reference.ParseNormalizedNamed(wanted)
	return err == nil && (want.String() == known.String() || reference.IsNameOnly(want) && want.Name() == known.Name())
}

// SameRepository reports whether two names differ in tag and digest at most.
func SameRepository(a, b string) bool {
	one, err := reference.ParseNormalizedNamed(a)
	if err != nil {
		return false
	}
	other, err := reference.ParseNormalizedNamed(b)
	return err == nil && one.Name() == other.Name()
}

// Full returns the full form of a name, with registry and tag, as runtimes store it.
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

// Familiar returns a name as docker displays it: without docker.io/library.
func Familiar(name string) string {
	if ref, err := reference.ParseNormalizedNamed(name); err == nil {
		return reference.FamiliarString(ref)
	}
	return name
}
