package output

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type column[T any] struct {
	name  string // in upper case, as in the header
	wide  bool   // shown only with -o wide or if --columns names the column
	named bool   // shown only if --columns names the column
	value func(row T, o Options) string
	// number is the sort key; nil: sort by text.
	number func(row T) int64
	// shrink allows cells to be cut on a narrow terminal, down to the width least.
	shrink bool
	least  int  // minimum width, if larger than minShrunk and the header's width
	start  bool // cut the beginning, because an image's tag is at the end
	// spare allows the column to be dropped on a narrow terminal. The lowest number is dropped first; among equal
	// numbers, the rightmost column. A column with 0 is never dropped. --columns and -o wide show all columns. A table
	// with prose drops all columns with spare at once, except with --columns.
	spare int
	width int // minimum width in a growing table, whose rows arrive over time and may have wider cells
	// prose marks sentences. They are wrapped to lines of their own instead of cut.
	prose bool
	tone  func(row T, o Options) tone // colour of a cell; may be nil
}

func by[T any, N int64 | uint64 | uint32](number func(T) N) func(T) int64 {
	return func(row T) int64 { return int64(number(row)) }
}

// sortKey returns a row's text for compareText.
func (c column[T]) sortKey(row T, o Options) string {
	if c.number == nil {
		return c.value(row, o)
	}
	return strconv.FormatInt(c.number(row), 10)
}

// key returns the name of a column as users type it: "POD ID" is "pod-id", "CPU %" is "cpu" and "NET I/O" is "net".
func key(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), " ", "-")
	switch name {
	case "cpu-%":
		return "cpu"
	case "mem-%":
		return "mem%"
	}
	return strings.TrimSuffix(name, "-i/o")
}

// Columns are the column names of a view that --columns and --sort accept.
type Columns []string

var (
	ContainerColumns = keys(containerColumns)
	PodColumns       = keys(podColumns)
	ImageColumns     = keys(imageColumns)
	EndpointColumns  = keys(endpointColumns)
	FindingColumns   = keys(findingColumns)
	SettingColumns   = keys(settingColumns)
	DiskColumns      = keys(diskColumns)
	EventColumns     = keys(eventColumns)
	StatsColumns     = keys(usageColumns(containerSubject))
	PodStatsColumns  = keys(usageColumns(podSubject))
	HistoryColumns   = keys(historyColumns)
	OwnerColumns     = keys(ownerColumns)
)

func keys[T any](columns []column[T]) Columns {
	return each(columns, func(c column[T]) string { return key(c.name) })
}

// Check validates the column names in o before any data is requested.
func (c Columns) Check(o Options) error {
	wanted := slices.Clone(o.Columns)
	if o.Sort != "" {
		wanted = append(wanted, strings.TrimPrefix(o.Sort, "-"))
	}
	for _, name := range wanted {
		if _, err := c.index(name); err != nil {
			return err
		}
	}
	return nil
}

func (c Columns) index(name string) (int, error) {
	i := slices.Index(c, key(strings.TrimSpace(name)))
	if i < 0 {
		return 0, fmt.Errorf("unknown column %q: must be one of %s", name, c)
	}
	return i, nil
}

func (c Columns) String() string { return strings.Join(c, ", ") }

func choose[T any](columns []column[T], o Options) ([]column[T], error) {
	var chosen []column[T]
	if len(o.Columns) == 0 {
		for _, c := range columns {
			if !c.named && (!c.wide || o.Format.Kind == Wide) {
				chosen = append(chosen, c)
			}
		}
		return chosen, nil
	}
	for _, name := range o.Columns {
		i, err := keys(columns).index(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, columns[i])
	}
	return chosen, nil
}

// sortColumn returns the column in o.Sort and whether the order is descending.
func sortColumn(o Options) (name string, down bool) {
	name, down = strings.CutPrefix(o.Sort, "-")
	return key(strings.TrimSpace(name)), down
}

// order sorts rows by the column in o.Sort. The sort is stable.
func order[T any](rows []T, columns []column[T], o Options) ([]T, error) {
	if o.Sort == "" {
		return rows, nil
	}
	name, down := sortColumn(o)
	i, err := keys(columns).index(name)
	if err != nil {
		return nil, err
	}
	return sortedBy(rows, func(r T) string { return columns[i].sortKey(r, o) }, inOrder(down)), nil
}

func sortedBy[T any](rows []T, text func(T) string, compare func(a, b string) int) []T {
	type keyed struct {
		row  T
		text string
	}
	sorted := each(rows, func(r T) keyed { return keyed{r, text(r)} })
	slices.SortStableFunc(sorted, func(a, b keyed) int { return compare(a.text, b.text) })
	return each(sorted, func(k keyed) T { return k.row })
}

func inOrder(down bool) func(a, b string) int {
	if down {
		return func(a, b string) int { return compareText(b, a) }
	}
	return compareText
}

// compareText sorts integers by value and before all other texts.
func compareText(a, b string) int {
	n, errA := strconv.Atoi(a)
	m, errB := strconv.Atoi(b)
	switch {
	case errA == nil && errB != nil:
		return -1
	case errA != nil && errB == nil:
		return 1
	}
	return cmp.Or(cmp.Compare(n, m), cmp.Compare(a, b))
}
