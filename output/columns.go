package output

import (
	"fmt"
	"slices"
	"strings"
)

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
	StatsColumns     = keys(usageColumns(containerSubject))
	PodStatsColumns  = keys(usageColumns(podSubject))
)

func keys[T any](columns []column[T]) Columns {
	names := make(Columns, len(columns))
	for i, c := range columns {
		names[i] = key(c.name)
	}
	return names
}

// Check says whether a view has the columns that o names, before there is
// anything to show.
func (c Columns) Check(o Options) error {
	wanted := slices.Clone(o.Columns)
	if o.Sort != "" {
		wanted = append(wanted, strings.TrimPrefix(o.Sort, "-"))
	}
	for _, name := range wanted {
		if !slices.Contains(c, key(strings.TrimSpace(name))) {
			return unknownColumn(name, c)
		}
	}
	return nil
}

func (c Columns) String() string { return strings.Join(c, ", ") }

func unknownColumn(name string, known Columns) error {
	return fmt.Errorf("unknown column %q: must be one of %s", name, known)
}
