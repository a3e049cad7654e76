package output

import (
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// growing is a table whose rows arrive over time.
type growing[T any] struct {
	w      io.Writer
	shown  []column[T]
	widths []int
	space  int
	fixed  bool // columns keep their widths, to fit a terminal
}

func grow[T any](w io.Writer, rows []T, columns []column[T], o Options) (*growing[T], error) {
	shown, err := choose(columns, o)
	if err != nil {
		return nil, err
	}
	g := &growing[T]{w: w, space: gap, fixed: o.Width > 0 && !o.NoTrunc}
	if g.fixed {
		g.shown, g.widths = g.fit(shown, rows, o)
	} else {
		g.shown, g.widths = shown, g.least(shown, rows, o)
	}
	if !o.NoHeaders {
		headers := each(g.shown, func(c column[T]) string { return c.name })
		if err := g.line(headers, painter[T](nil, g.shown, o)); err != nil {
			return nil, err
		}
	}
	for _, row := range rows {
		if err := g.row(row, o); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *growing[T]) least(shown []column[T], rows []T, o Options) []int {
	widths := widthsOf(cellsOf(rows, shown, o), len(shown))
	for i, c := range shown {
		widths[i] = max(widths[i], c.width, len(c.name))
	}
	return widths
}

// fit selects the columns that fit the terminal and gives the remaining width to shrinking columns, because later cells
// may be longer.
func (g *growing[T]) fit(shown []column[T], rows []T, o Options) ([]column[T], []int) {
	widths := g.least(shown, rows, o)
	if lineWidth(widths, gap) > o.Width {
		shown, g.space = narrow(shown, widths, o.Width, len(o.Columns) == 0 && o.Format.Kind != Wide)
		if widths = g.least(shown, rows, o); lineWidth(widths, g.space) > o.Width {
			g.space = narrowGap
		}
		shrink(shown, widths, o.Width, g.space)
	}
	most := each(widths, func(width int) int { return 2 * width })
	for room := o.Width - lineWidth(widths, g.space); room > 0; room-- {
		narrowest := -1
		for i, c := range shown {
			if c.shrink && widths[i] < most[i] && (narrowest < 0 || widths[i] < widths[narrowest]) {
				narrowest = i
			}
		}
		if narrowest < 0 {
			break
		}
		widths[narrowest]++
	}
	return shown, widths
}

func (g *growing[T]) row(row T, o Options) error {
	o.NoHeaders = true // the function that colours cells would take line 0 for a header
	return g.line(each(g.shown, func(c column[T]) string { return Sanitize(c.value(row, o)) }), painter([]T{row}, g.shown, o))
}

// line writes one row. Unless widths are fixed, a cell that does not fit widens its column for this and all later rows.
func (g *growing[T]) line(cells []string, paint func(int, int, string) string) error {
	var b strings.Builder
	for i, cell := range cells {
		if g.fixed && g.shown[i].shrink {
			cell = truncate(cell, g.widths[i])
		}
		if !g.fixed {
			g.widths[i] = max(g.widths[i], cellWidth(cell))
		}
		text := cell
		if paint != nil {
			text = paint(0, i, cell)
		}
		b.WriteString(text + strings.Repeat(" ", max(g.widths[i]-cellWidth(cell), 0)+g.space))
	}
	_, err := io.WriteString(g.w, strings.TrimRight(b.String(), " ")+"\n")
	return err
}

// Changes writes a list and, on each later call, only the changed rows. A table also has a row for each removed object.
// Machine formats have a document per changed row and omit removed objects.
type Changes struct {
	w          io.Writer
	containers changes[container]
	pods       changes[pod]
}

func NewChanges(w io.Writer) *Changes { return &Changes{w: w} }

func (c *Changes) Containers(list []*runtimeapi.Container, o Options) error {
	columns := asCrictl(containerColumns, crictlContainerColumns, o)
	return c.containers.show(c.w, newestFirst(list), columns, func(one container) view {
		return view{fallback: Table, items: messages([]container{one}), ids: []string{one.GetId()}, names: []string{containerReference(one, o)}}
	}, o)
}

func (c *Changes) Pods(list []*runtimeapi.PodSandbox, o Options) error {
	columns := asCrictl(podColumns, crictlPodColumns, o)
	return c.pods.show(c.w, newestFirst(list), columns, func(one pod) view {
		return view{fallback: Table, items: messages([]pod{one}), ids: []string{one.GetId()}, names: []string{podReference(one)}}
	}, o)
}

type changes[T interface{ GetId() string }] struct {
	table *growing[T]
	known map[string]T
	looks map[string]string // text of each row, without ages
}

func (c *changes[T]) show(w io.Writer, rows []T, columns []column[T], one func(T) view, o Options) error {
	asTable := !o.Quiet && !o.Format.ForMachines()
	first := c.known == nil
	known, looks := map[string]T{}, map[string]string{}
	var changed []T
	for _, row := range slices.Backward(rows) { // oldest first
		look, err := c.look(row, columns, one(row), asTable, o)
		if err != nil {
			return err
		}
		if before, had := c.looks[row.GetId()]; !had || before != look {
			changed = append(changed, row)
		}
		known[row.GetId()], looks[row.GetId()] = row, look
	}
	gone := maps.Clone(c.known)
	maps.DeleteFunc(gone, func(id string, _ T) bool { _, here := known[id]; return here })
	c.known, c.looks = known, looks
	if asTable && first {
		var err error
		if rows, err = order(rows, columns, o); err == nil {
			c.table, err = grow(w, rows, columns, o)
		}
		return err
	}
	for _, row := range changed {
		if asTable {
			if err := c.table.row(row, o); err != nil {
				return err
			}
			continue
		}
		if err := renderOne(w, one(row), o); err != nil {
			return err
		}
	}
	o.deleted = true
	for _, id := range slices.Sorted(maps.Keys(gone)) {
		if asTable {
			if err := c.table.row(gone[id], o); err != nil {
				return err
			}
		}
	}
	return nil
}

// look returns a row's text for comparison with the previous one. It excludes ages, because they change all the time.
func (c *changes[T]) look(row T, columns []column[T], v view, asTable bool, o Options) (string, error) {
	if o.Quiet {
		return row.GetId(), nil
	}
	if !asTable {
		items, err := v.items()
		if err != nil {
			return "", err
		}
		return string(items[0]), nil
	}
	shown, err := choose(columns, o)
	if err != nil {
		return "", err
	}
	o.Now = time.Unix(0, 0)
	return strings.Join(each(shown, func(c column[T]) string { return c.value(row, o) }), "\n"), nil
}
