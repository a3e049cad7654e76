package output

import "io"

// rows writes a list that is no CRI message: its document is the rows below
// one key, in the words of their JSON tags.
func rows[T any](w io.Writer, key string, list []T, columns []column[T], name func(T) string, o Options) error {
	if list == nil {
		list = []T{}
	}
	v := view{fallback: Table}
	v.root = func() ([]byte, error) { return compactJSON(map[string]any{key: list}) }
	v.items = func() ([][]byte, error) {
		items := make([][]byte, len(list))
		for i, row := range list {
			b, err := compactJSON(row)
			if err != nil {
				return nil, err
			}
			items[i] = b
		}
		return items, nil
	}
	v.names = func() []string { return each(list, name) }
	v.ids = v.names
	v.table = func(w io.Writer, o Options) error { return writeTable(w, list, columns, o) }
	return render(w, v, o)
}
