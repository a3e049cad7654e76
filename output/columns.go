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
	// less orders rows by what the text stands for; nil: by the text, or the number that it is.
	less func(a, b T) int
	// shrink marks a column that gives way when the terminal is narrow, down to least cells.
	shrink bool
	least  int // 0: minShrunk; never less than its header
	// start marks a column that is cut at its beginning: an image's tag is at its end.
	start bool
	// spare marks a column that is left out where the terminal is narrower still,
	// the one with the lowest number first, of equals the last; 0 never is. --columns and
	// -o wide show it in any case.
	spare int
	// width is the least, of columns that are written before all of their cells are known.
	width int
	// prose marks sentences, which are no use when they are cut: where a line is too
	// long for the terminal they go on lines of their own.
	prose bool
	// tone is the colour of a row's cell; nil: none.
	tone func(row T, o Options) tone
}

// by orders rows by a number.
func by[T any, N cmp.Ordered](number func(T) N) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(number(a), number(b)) }
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

// The columns of each view.
var (
	ContainerColumns = keys(containerColumns)
	PodColumns       = keys(podColumns)
	ImageColumns     = keys(imageColumns)
	EndpointColumns  = keys(endpointColumns)
	FindingColumns   = keys(findingColumns)
	SettingColumns   = keys(settingColumns)
	EventColumns     = keys(eventColumns)
	StatsColumns     = keys(usageColumns(containerSubject))
	PodStatsColumns  = keys(usageColumns(podSubject))
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

// index is where the column is that name means.
func (c Columns) index(name string) (int, error) {
	i := slices.Index(c, key(strings.TrimSpace(name)))
	if i < 0 {
		return 0, fmt.Errorf("unknown column %q: must be one of %s", name, c)
	}
	return i, nil
}

func (c Columns) String() string { return strings.Join(c, ", ") }

// choose returns the columns to show.
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

// order sorts rows by the column that o.Sort names, keeping the order of equals.
func order[T any](rows []T, columns []column[T], o Options) ([]T, error) {
	if o.Sort == "" {
		return rows, nil
	}
	name, down := strings.CutPrefix(o.Sort, "-")
	i, err := keys(columns).index(name)
	if err != nil {
		return nil, err
	}
	less := columns[i].less
	if less == nil {
		less = func(a, b T) int { return compareText(columns[i].value(a, o), columns[i].value(b, o)) }
	}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b T) int {
		if down {
			return less(b, a)
		}
		return less(a, b)
	})
	return sorted, nil
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
