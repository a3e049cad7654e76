package output

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// column is one column of a table over rows of type T.
type column[T any] struct {
	name  string // upper case, as in the header
	wide  bool   // shown with -o wide (or by name) only
	named bool   // shown by name only
	value func(row T, o Options) string
	// number is what rows are sorted by; nil: the text.
	number func(row T) int64
	// shrink marks a column that is cut when the terminal is narrow, down to least cells.
	shrink bool
	least  int  // 0: minShrunk; never less than its header
	start  bool // it is cut at its beginning: an image's tag is at its end
	// spare marks a column that is dropped when the terminal is narrower still, the lowest
	// number first, of equals the last; 0 never is. --columns and -o wide show it in any case.
	spare int
	width int // the least, of columns that are written before all of their cells are known
	// prose marks sentences. They are not cut, but go on lines of their own.
	prose bool
	tone  func(row T, o Options) tone // the colour of a row's cell; nil: none
}

func by[T any, N int64 | uint64 | uint32](number func(T) N) func(T) int64 {
	return func(row T) int64 { return int64(number(row)) }
}

// sortKey returns the text that compareText sorts a row by.
func (c column[T]) sortKey(row T, o Options) string {
	if c.number == nil {
		return c.value(row, o)
	}
	return strconv.FormatInt(c.number(row), 10)
}

// key is the form of a column's name that people type: "POD ID" is "pod-id".
// "CPU %" is "cpu", and "NET I/O" is "net".
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

// Columns are the names that --columns and --sort take for a view.
type Columns []string

// Columns of the views.
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

// Check reports whether a view has the columns that o names, before there is
// anything to show.
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

// sortColumn returns the column that o.Sort names.
func sortColumn(o Options) (name string, down bool) {
	name, down = strings.CutPrefix(o.Sort, "-")
	return key(strings.TrimSpace(name)), down
}

// order sorts rows by the column that o.Sort names, keeping the order of equals.
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

// compareText orders numbers by their size, before all other texts.
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
