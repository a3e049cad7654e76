package output

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const none = "<none>"

// imageRow is a row of the image table. An image has a row for each tag.
type imageRow struct {
	image             *runtimeapi.Image
	name, tag, digest string
}

var imageColumns = []column[imageRow]{
	{name: "IMAGE", shrink: true, start: true, value: func(r imageRow, _ Options) string { return r.name }},
	{name: "TAG", shrink: true, value: func(r imageRow, _ Options) string { return r.tag }},
	{name: "DIGEST", wide: true, value: func(r imageRow, o Options) string { return shortID(r.digest, o) }},
	{name: "IMAGE ID", value: func(r imageRow, o Options) string { return shortID(r.image.GetId(), o) }},
	{
		name: "SIZE", number: by(func(r imageRow) uint64 { return r.image.GetSize() }),
		value: func(r imageRow, _ Options) string { return size(r.image.GetSize()) },
	},
	{name: "PINNED", wide: true, value: func(r imageRow, _ Options) string { return strconv.FormatBool(r.image.GetPinned()) }},
}

// imageRows returns the rows of one image: one per tag or, without tags, one with its digest.
func imageRows(image *runtimeapi.Image) []imageRow {
	name, digest, found := strings.Cut(first(image.GetRepoDigests()), "@")
	if !found {
		name, digest = none, none
	}
	if len(image.GetRepoTags()) == 0 {
		return []imageRow{{image, name, none, digest}}
	}
	return each(image.GetRepoTags(), func(ref string) imageRow {
		if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') { // a colon before the last slash precedes a registry's port
			return imageRow{image, ref[:i], ref[i+1:], digest}
		}
		return imageRow{image, ref, none, digest}
	})
}

// Images writes a list of images sorted by first tag, first digest and id.
func Images(w io.Writer, r *runtimeapi.ListImagesResponse, o Options) error {
	images := slices.Clone(r.GetImages())
	slices.SortStableFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(first(a.GetRepoTags()), first(b.GetRepoTags())), cmp.Compare(first(a.GetRepoDigests()), first(b.GetRepoDigests())), cmp.Compare(a.GetId(), b.GetId()))
	})
	return render(w, view{
		fallback: Table, items: messages(images), key: "images",
		ids: each(images, (*runtimeapi.Image).GetId), names: each(images, imageReference),
		table: func(w io.Writer, o Options) error {
			columns := slices.Clone(imageColumns)
			for i, c := range columns { // a column that its flag selects does not need -o wide
				if c.name == "DIGEST" && o.Digests || c.name == "PINNED" && o.Pinned {
					columns[i].wide = false
				}
			}
			return writeTable(w, slices.Concat(each(images, imageRows)...), columns, o)
		},
		long: func(w io.Writer, _ Options) error { return longImages(w, images) },
	}, o)
}

// imageReference returns the first tag of an image, else its first digest, else its id.
func imageReference(image *runtimeapi.Image) string {
	return cmp.Or(first(image.GetRepoTags()), first(image.GetRepoDigests()), image.GetId())
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// HistoryEntry is a row of `crishim history`: one step of an image's build.
type HistoryEntry struct {
	Created   *time.Time `json:"created,omitempty"`
	CreatedBy string     `json:"createdBy"`
	Size      *int64     `json:"size,omitempty"` // uncompressed size in bytes; nil: unknown
	Comment   string     `json:"comment,omitempty"`
	ID        string     `json:"id,omitempty"` // image id at that step, if the runtime has it
}

var historyColumns = []column[HistoryEntry]{
	{
		name: "CREATED", number: func(h HistoryEntry) int64 {
			if h.Created == nil {
				return 0
			}
			return h.Created.Unix()
		},
		value: func(h HistoryEntry, o Options) string {
			if h.Created == nil {
				return unknownCell
			}
			return age(h.Created.UnixNano(), o)
		},
	},
	{name: "CREATED BY", shrink: true, least: 20, value: func(h HistoryEntry, _ Options) string { return h.CreatedBy }},
	{
		name: "SIZE", number: func(h HistoryEntry) int64 {
			if h.Size == nil {
				return -1
			}
			return *h.Size
		},
		value: func(h HistoryEntry, _ Options) string {
			if h.Size == nil {
				return unknownCell
			}
			return size(uint64(*h.Size))
		},
	},
	{name: "COMMENT", shrink: true, spare: 1, value: func(h HistoryEntry, _ Options) string { return h.Comment }},
	{name: "IMAGE ID", wide: true, value: func(h HistoryEntry, o Options) string { return shortID(h.ID, o) }},
}

// History writes the steps of an image's build, last step first.
func History(w io.Writer, steps []HistoryEntry, o Options) error {
	return values(w, "history", steps, historyColumns, func(h HistoryEntry) string { return h.CreatedBy }, o)
}
