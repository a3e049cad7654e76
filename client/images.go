package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FindImage finds the image that a reference stands for: an id with or
// without sha256:, a tag or digest in short or long form, or a unique prefix
// of an id, tried in that order.
func (c *Conn) FindImage(ctx context.Context, ref string) (*runtimeapi.Image, error) {
	if ref == "" || strings.ContainsFunc(ref, isControl) {
		return nil, &SyntaxError{What: "image", Text: ref, Reason: "is no reference", hint: "give an id, or a name such as busybox:1.36"}
	}
	list, err := c.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return matchImage(list.GetImages(), ref)
}

func matchImage(images []*runtimeapi.Image, ref string) (*runtimeapi.Image, error) {
	full := fullReference(ref)
	for _, img := range images {
		if img.GetId() == ref || bareID(img.GetId()) == ref {
			return img, nil
		}
	}
	for _, img := range images {
		if hasReference(img, ref, full) {
			return img, nil
		}
	}
	var found []*runtimeapi.Image
	for _, img := range images {
		if strings.HasPrefix(bareID(img.GetId()), bareID(ref)) && bareID(ref) != "" {
			found = append(found, img)
		}
	}
	switch len(found) {
	case 0:
		return nil, &Error{Code: codes.NotFound, text: fmt.Sprintf("there is no image %q", ref), hint: "`crishim images` lists them, `crishim pull` gets one"}
	case 1:
		return found[0], nil
	}
	return nil, ambiguousImage(ref, found)
}

// hasReference compares tags and digests as they are and in their long form;
// a runtime may send either.
func hasReference(img *runtimeapi.Image, ref, full string) bool {
	same := func(name string) bool { return name == ref || full != "" && fullReference(name) == full }
	return slices.ContainsFunc(img.GetRepoTags(), same) || slices.ContainsFunc(img.GetRepoDigests(), same)
}

// fullReference writes a name out in full, docker.io/library/busybox:latest
// for busybox; empty when it is no name.
func fullReference(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return ""
	}
	// A digest decides; a tag beside it is for people.
	if d, ok := named.(reference.Digested); ok {
		if c, err := reference.WithDigest(reference.TrimNamed(named), d.Digest()); err == nil {
			return c.String()
		}
	}
	return reference.TagNameOnly(named).String()
}

func bareID(id string) string { return strings.TrimPrefix(id, "sha256:") }

func ambiguousImage(ref string, found []*runtimeapi.Image) error {
	var list []string
	for _, img := range found {
		name := "<none>"
		if names := append(slices.Clone(img.GetRepoTags()), img.GetRepoDigests()...); len(names) > 0 {
			name = names[0]
		}
		id := bareID(img.GetId())
		list = append(list, fmt.Sprintf("%s  %s", clean(id[:min(13, len(id))]), clean(name)))
	}
	return &Error{Code: codes.FailedPrecondition, text: fmt.Sprintf("%q is ambiguous: %d images match:", ref, len(found)), list: list, hint: "give more of the id"}
}
