package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	urfave "github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/internal/imageref"
	"github.com/crishim/crishim/internal/shellwords"
)

// ImageFilter chooses images by flags.
type ImageFilter struct {
	Ref    string // a repository, a name or an id
	Name   Pattern
	Crictl bool // --filter has crictl's meaning
	keys   []imageFilter
}

// Flag returns --filter of images.
func (f *ImageFilter) Flag() urfave.Flag {
	return ListFlag(&f.keys, parseImageFilter, "filter", "Filter by condition `KEY=VALUE`", "f")
}

// PruneFlag returns --filter of rmi.
func (f *ImageFilter) PruneFlag() urfave.Flag {
	return ListFlag(&f.keys, func(text string) (imageFilter, error) {
		key, value, _ := strings.Cut(text, "=")
		if key != "label" && key != "label!" {
			return parseImageFilter(text)
		}
		if value == "" || strings.HasPrefix(value, "=") {
			return imageFilter{}, fmt.Errorf("must be %s=KEY or %[1]s=KEY=VALUE", key)
		}
		return imageFilter{key: key, value: value, label: true}, nil
	}, "filter", "With --prune: filter by condition `KEY=VALUE`")
}

// Given reports whether there is a filter of images.
func (f *ImageFilter) Given() bool { return len(f.keys) > 0 }

// Images lists the images that the filter chooses, by name. The runtime is asked for all, because many
// ignore the filter or know only one spelling of a name.
func (f *ImageFilter) Images(ctx context.Context, conn *client.Conn) ([]*runtimeapi.Image, error) {
	res, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return f.Choose(res.GetImages())
}

// Choose applies the filter except its labels. ByLabel applies the labels, which takes a request per image.
func (f *ImageFilter) Choose(images []*runtimeapi.Image) (_ []*runtimeapi.Image, err error) {
	slices.SortStableFunc(images, func(a, b *runtimeapi.Image) int { return strings.Compare(ImageName(a), ImageName(b)) })
	all := slices.Clone(images)
	images = slices.DeleteFunc(images, func(i *runtimeapi.Image) bool { return f.Ref != "" && !isNamed(i, f.Ref) })
	for _, key := range f.keys {
		if f.Crictl {
			images = key.applyCrictl(images)
		} else if images, err = key.apply(images, all); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(images, func(i *runtimeapi.Image) bool { return !f.Name.matches(ImageName(i)) }), nil
}

// imageFilter is one --filter of images; all must hold.
type imageFilter struct {
	key, value string
	dangling   bool
	label      bool
	reference  *regexp.Regexp
}

func parseImageFilter(text string) (f imageFilter, err error) {
	f.key, f.value, _ = strings.Cut(text, "=")
	switch f.key {
	case "dangling":
		if f.dangling, err = strconv.ParseBool(f.value); err != nil {
			err = errors.New("must be dangling=true or dangling=false")
		}
	case "reference":
		f.reference, err = regexp.Compile(f.value)
	case "before", "since":
		if f.value == "" {
			err = fmt.Errorf("must be %s=IMAGE", f.key)
		}
	default:
		err = errors.New("must be dangling=BOOL, reference=REGEX, before=IMAGE or since=IMAGE")
		if strings.Contains(text, "{{") { // the user means `docker inspect -f TEMPLATE`
			err = WithHint(err, "`-o go-template=TEMPLATE` prints fields")
		}
	}
	return f, err
}

// apply filters images. before and since refer to the order of all images, which are sorted by name, because images have
// no time in CRI.
func (f imageFilter) apply(images, all []*runtimeapi.Image) ([]*runtimeapi.Image, error) {
	switch f.key {
	case "label", "label!":
		return images, nil
	case "dangling":
		return slices.DeleteFunc(images, func(i *runtimeapi.Image) bool { return (len(i.GetRepoTags()) == 0) != f.dangling }), nil
	case "reference":
		return slices.DeleteFunc(images, func(i *runtimeapi.Image) bool {
			return !slices.ContainsFunc(slices.Concat(i.GetRepoTags(), i.GetRepoDigests()), f.reference.MatchString)
		}), nil
	}
	at := slices.IndexFunc(all, func(i *runtimeapi.Image) bool { return isNamed(i, f.value) })
	if at < 0 {
		return nil, fmt.Errorf("--filter %s=%s: no such image", f.key, f.value)
	}
	if f.key == "before" {
		all = all[at+1:]
	} else {
		all = all[:at]
	}
	return slices.DeleteFunc(images, func(i *runtimeapi.Image) bool { return !slices.Contains(all, i) }), nil
}

// ByLabel applies the filters by labels, which only the verbose status of an image has.
func (f *ImageFilter) ByLabel(ctx context.Context, conn *client.Conn, images []*runtimeapi.Image) (_ []*runtimeapi.Image, err error) {
	for _, key := range f.keys {
		if key.label {
			if images, err = key.byLabel(ctx, conn, images); err != nil {
				return nil, err
			}
		}
	}
	return images, nil
}

func (f imageFilter) byLabel(ctx context.Context, conn *client.Conn, images []*runtimeapi.Image) ([]*runtimeapi.Image, error) {
	key, value, valued := strings.Cut(f.value, "=")
	keep := make([]bool, len(images))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(MaxConcurrent)
	for i, image := range images {
		g.Go(func() error {
			res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image.GetId()}, Verbose: true})
			if err != nil {
				return err
			}
			var info struct {
				ImageSpec *struct {
					Config struct{ Labels map[string]string }
				}
			}
			if res.GetImage() == nil { // removed meanwhile
				return nil
			}
			if err := json.Unmarshal([]byte(res.GetInfo()["info"]), &info); err != nil || info.ImageSpec == nil {
				return fmt.Errorf("--filter %s=%s: %s does not tell the labels of images", f.key, f.value, cmp.Or(conn.Version.GetRuntimeName(), conn.ImageEndpoint))
			}
			found, has := info.ImageSpec.Config.Labels[key]
			keep[i] = (has && (!valued || found == value)) == (f.key == "label")
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var kept []*runtimeapi.Image
	for i, image := range images {
		if keep[i] {
			kept = append(kept, image)
		}
	}
	return kept, nil
}

// applyCrictl filters as crictl does: reference matches only the repository of the first digest, and an unknown image
// of before or since keeps all images.
func (f imageFilter) applyCrictl(images []*runtimeapi.Image) []*runtimeapi.Image {
	at := func(i *runtimeapi.Image) bool {
		switch {
		case strings.Contains(f.value, "@"):
			return len(i.GetRepoDigests()) > 0 && strings.HasPrefix(i.GetRepoDigests()[0], f.value)
		case strings.Contains(f.value, ":"):
			return len(i.GetRepoTags()) > 0 && i.GetRepoTags()[0] == f.value
		}
		return strings.HasPrefix(i.GetId(), f.value)
	}
	switch index := slices.IndexFunc(images, at); {
	case f.key == "reference":
		return slices.DeleteFunc(images, func(i *runtimeapi.Image) bool {
			repository, _, _ := strings.Cut(slices.Concat(i.GetRepoDigests(), []string{"<none>"})[0], "@")
			return !f.reference.MatchString(repository)
		})
	case f.key == "dangling":
		images, _ = f.apply(images, nil) // never fails for dangling
		return images
	case index < 0:
		return images
	case f.key == "before":
		return images[index+1:]
	default:
		return images[:index]
	}
}

// isNamed reports whether name is a repository of the image, with or without tag or digest, or the
// beginning of its id.
func isNamed(image *runtimeapi.Image, name string) bool {
	id := strings.TrimPrefix(image.GetId(), "sha256:")
	if wanted := strings.TrimPrefix(name, "sha256:"); len(wanted) >= 3 && strings.HasPrefix(id, wanted) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(image.GetRepoTags(), image.GetRepoDigests()), func(known string) bool {
		return imageref.Matches(known, name)
	})
}

// WithOnlyTags returns images with only the tags that ref names, as docker lists them. An image named by id or digest
// keeps all tags.
func WithOnlyTags(images []*runtimeapi.Image, ref string) []*runtimeapi.Image {
	out := slices.Clone(images)
	for i, image := range images {
		tags := slices.DeleteFunc(slices.Clone(image.GetRepoTags()), func(tag string) bool {
			return !isNamed(&runtimeapi.Image{RepoTags: []string{tag}}, ref)
		})
		if len(tags) > 0 {
			out[i] = proto.CloneOf(image)
			out[i].RepoTags = tags
		}
	}
	return out
}

// ImageName returns the first tag of an image, else a digest, else its id.
func ImageName(image *runtimeapi.Image) string {
	return slices.Concat(image.GetRepoTags(), image.GetRepoDigests(), []string{image.GetId()})[0]
}

// noImage is the error about a missing image. In CRI, ImageStatus of a missing image is not an error.
type noImage struct{ ref string }

func (e noImage) Error() string { return "no such image " + Quote(e.ref) }

// GRPCStatus returns NotFound, as for other missing objects.
func (e noImage) GRPCStatus() *status.Status { return status.New(codes.NotFound, e.Error()) }

// ImageStatus returns the status of an image, and fails if the image does not exist. With pull, the error has a hint
// how to pull the image.
func ImageStatus(ctx context.Context, conn *client.Conn, ref string, verbose, pull bool) (*runtimeapi.ImageStatusResponse, error) {
	res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Verbose: verbose})
	if err == nil && res.GetImage() == nil {
		all, _ := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{}) // for the hint alone
		err = WithHint(noImage{ref}, "%s", OtherImages(all.GetImages(), ref, pull))
	}
	return res, err
}

// OtherImages returns the hint about an image that does not exist: another tag of its repository, or a
// similar name.
func OtherImages(images []*runtimeapi.Image, ref string, pull bool) string {
	var tags, names []string
	for _, image := range images {
		for _, tag := range image.GetRepoTags() {
			known, err := reference.ParseNormalizedNamed(tag)
			if err != nil {
				continue
			}
			if imageref.SameRepository(tag, ref) {
				tags = append(tags, reference.FamiliarString(known))
			}
			names = append(names, reference.FamiliarString(known), reference.FamiliarName(known))
		}
	}
	meant := suggest.Closest(ref, names)
	if len(tags) > 0 {
		meant = cmp.Or(suggest.Closest(ref, tags), tags[0])
	}
	hint := "`crishim images` lists them"
	if pull {
		hint += ", `crishim pull " + shellwords.Quote(ref) + "` gets it"
	}
	if meant != "" {
		hint = "did you mean " + meant + "? " + hint
	}
	return hint
}
