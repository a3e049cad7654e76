package commands

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namedImages are the images that a user means by a repository, a repository
// with tag or digest, or an id. An empty name means all.
func namedImages(images []*runtimeapi.Image, name string) []*runtimeapi.Image {
	if name == "" {
		return images
	}
	return slices.DeleteFunc(slices.Clone(images), func(image *runtimeapi.Image) bool {
		return !isNamed(image, name)
	})
}

func isNamed(image *runtimeapi.Image, name string) bool {
	id := strings.TrimPrefix(image.GetId(), "sha256:")
	if wanted := strings.TrimPrefix(name, "sha256:"); len(wanted) >= 3 && strings.HasPrefix(id, wanted) {
		return true
	}
	wanted, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return false
	}
	for _, known := range slices.Concat(image.GetRepoTags(), image.GetRepoDigests()) {
		named, err := reference.ParseNormalizedNamed(known)
		if err != nil {
			continue
		}
		if named.String() == wanted.String() || reference.IsNameOnly(wanted) && named.Name() == wanted.Name() {
			return true
		}
	}
	return false
}

// imageFilter is one --filter.
type imageFilter struct {
	key, value string
	dangling   bool
	reference  *regexp.Regexp
}

// imageFilters are all of them; all must hold.
type imageFilters []imageFilter

func parseImageFilters(texts []string) (imageFilters, error) {
	var filters imageFilters
	for _, text := range texts {
		filter := imageFilter{}
		var err error
		filter.key, filter.value, _ = strings.Cut(text, "=")
		switch filter.key {
		case "dangling":
			filter.dangling, err = strconv.ParseBool(filter.value)
		case "reference":
			filter.reference, err = regexp.Compile(filter.value)
		case "before", "since":
			if filter.value == "" {
				err = fmt.Errorf("want %s=IMAGE", filter.key)
			}
		default:
			err = fmt.Errorf("want dangling=, reference=, before= or since=")
		}
		if err != nil {
			return nil, usagef("--filter %s: %v", quote(text), err)
		}
		filters = append(filters, filter)
	}
	return filters, nil
}

func (fs imageFilters) apply(images []*runtimeapi.Image) ([]*runtimeapi.Image, error) {
	for _, f := range fs {
		var err error
		if images, err = f.apply(images); err != nil {
			return nil, err
		}
	}
	return images, nil
}

func (f imageFilter) apply(images []*runtimeapi.Image) ([]*runtimeapi.Image, error) {
	switch f.key {
	case "before", "since":
		return f.side(images)
	}
	return slices.DeleteFunc(slices.Clone(images), func(image *runtimeapi.Image) bool {
		if f.key == "dangling" {
			return (len(image.GetRepoTags()) == 0) != f.dangling
		}
		return !slices.ContainsFunc(slices.Concat(image.GetRepoTags(), image.GetRepoDigests()), f.reference.MatchString)
	}), nil
}

// side keeps what stands before or behind an image in the order of names,
// which is all that CRI tells: it has no time for images.
func (f imageFilter) side(images []*runtimeapi.Image) ([]*runtimeapi.Image, error) {
	sorted := slices.Clone(images)
	slices.SortStableFunc(sorted, func(a, b *runtimeapi.Image) int { return strings.Compare(imageName(a), imageName(b)) })
	at := slices.IndexFunc(sorted, func(image *runtimeapi.Image) bool { return isNamed(image, f.value) })
	switch {
	case at < 0:
		return nil, fmt.Errorf("--filter %s=%s: no such image", f.key, f.value)
	case f.key == "before":
		return sorted[at+1:], nil
	}
	return sorted[:at], nil
}

// imageName is how to call an image: its first tag, else a digest, else its id.
func imageName(image *runtimeapi.Image) string {
	for _, name := range slices.Concat(image.GetRepoTags(), image.GetRepoDigests()) {
		return name
	}
	return image.GetId()
}
