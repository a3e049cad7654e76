package output

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Accuracy of a DiskSize.
const (
	AtMost  = "at most"
	AtLeast = "at least"
	About   = "about"
)

// DiskSize is an amount of disk space that is used or could be freed.
type DiskSize struct {
	Bytes uint64 `json:"bytes"`
	Bound string `json:"bound,omitempty"` // AtMost, AtLeast or About; "": exact
}

func (s DiskSize) String() string {
	if s.Bound == "" {
		return size(s.Bytes)
	}
	return s.Bound + " " + size(s.Bytes)
}

func (s DiskSize) Plus(other DiskSize) DiskSize {
	bound := cmp.Or(s.Bound, other.Bound)
	if other.Bound != "" && other.Bound != bound {
		bound = About
	}
	return DiskSize{Bytes: s.Bytes + other.Bytes, Bound: bound}
}

// DiskUse is a row of `crishim df` with the objects of one type. Unknown figures are nil.
type DiskUse struct {
	Type        string       `json:"type"`
	Count       *int         `json:"count"`
	Active      *int         `json:"active"`
	Size        *DiskSize    `json:"size"`
	Reclaimable *DiskSize    `json:"reclaimable"`
	Note        string       `json:"note,omitempty"`
	Objects     []DiskObject `json:"objects,omitempty"`
}

// DiskObject is one object of a DiskUse, such as an image.
type DiskObject struct {
	Name        string    `json:"name"`
	ID          string    `json:"id,omitempty"`
	Active      bool      `json:"active"`
	Size        *DiskSize `json:"size"`
	Reclaimable *DiskSize `json:"reclaimable"`
}

type diskRow struct {
	DiskUse

	name string
}

func diskCell(s *DiskSize) string {
	if s == nil {
		return unknownCell
	}
	return s.String()
}

func diskNumber(s *DiskSize) int64 {
	if s == nil {
		return -1
	}
	return int64(s.Bytes) //nolint:gosec // no disk is larger
}

func countCell(n *int) string {
	if n == nil {
		return unknownCell
	}
	return fmt.Sprint(*n)
}

var diskColumns = []column[diskRow]{
	{name: "TYPE", value: func(r diskRow, _ Options) string { return r.Type }},
	{name: "NAME", shrink: true, named: true, value: func(r diskRow, _ Options) string { return r.name }},
	{name: "COUNT", spare: 2, value: func(r diskRow, _ Options) string { return countCell(r.Count) }},
	{name: "ACTIVE", spare: 1, value: func(r diskRow, _ Options) string { return countCell(r.Active) }},
	{name: "SIZE", number: func(r diskRow) int64 { return diskNumber(r.Size) }, value: func(r diskRow, _ Options) string { return diskCell(r.Size) }},
	{name: "RECLAIMABLE", number: func(r diskRow) int64 { return diskNumber(r.Reclaimable) }, value: func(r diskRow, _ Options) string { return diskCell(r.Reclaimable) }},
	{name: "NOTE", prose: true, value: func(r diskRow, _ Options) string { return r.Note }},
}

// DiskUsage writes disk usage by type, followed by the objects of each type if listed.
func DiskUsage(w io.Writer, usage []DiskUse, o Options) error {
	columns, rows := slices.Clone(diskColumns), []diskRow(nil)
	for _, u := range usage {
		rows = append(rows, diskRow{DiskUse: u})
		for _, object := range u.Objects {
			active := 0
			if object.Active {
				active = 1
			}
			one := 1
			columns[1].named = false
			rows = append(rows, diskRow{DiskUse{Type: u.Type, Count: &one, Active: &active, Size: object.Size, Reclaimable: object.Reclaimable}, object.Name})
		}
	}
	names := each(usage, func(u DiskUse) string { return u.Type })
	return render(w, view{
		fallback: Table, key: "usage", names: names, ids: names, items: documents(usage),
		table: func(w io.Writer, o Options) error { return writeTable(w, rows, columns, o) },
	}, o)
}
