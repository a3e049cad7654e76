package output

import (
	"strings"
	"testing"
)

// Nodes may have another version of crishim, with other columns and other fields: what one does not have is not known.
func TestMergePartsOfOtherVersions(t *testing.T) {
	t.Parallel()
	parts := func(texts ...string) (out []NodePart) {
		t.Helper()
		for i, text := range texts {
			part, ok, err := ReadPart([]byte("\x1e" + text))
			if !ok || err != nil {
				t.Fatalf("%s: %t, %v", text, ok, err)
			}
			out = append(out, NodePart{Node: "n" + string(rune('1'+i)), Part: part})
		}
		return out
	}
	tables := parts(
		`{"columns": [{"name": "NAME"}, {"name": "STATE"}], "rows": [{"cells": ["b", "Running"], "rank": "2", "sort": "b"}]}`,
		`{"columns": [{"name": "STATE"}, {"name": "NAME"}, {"name": "NEW", "newer": true}], "rows": [{"cells": ["Exited", "a", "x"], "rank": "1", "sort": "a"}], "later": 1}`,
		`{"columns": [{"name": "NAME"}]}`,
	)
	documents := parts(
		`{"items": [{"name": "b"}], "key": "containers", "ranks": ["2"]}`,
		`{"items": [{"name": "a", "new": {"x": 1}}, {}], "key": "containers"}`,
		`{}`,
	)
	for _, c := range []struct {
		format, sort string
		parts        []NodePart
		want         string
	}{
		{"", "", tables, "NODE NAME STATE NEW\nn2 a Exited x\nn1 b Running -\n"},
		{"", "-name", tables, "NODE NAME STATE NEW\nn1 b Running -\nn2 a Exited x\n"},
		{"jsonl", "", documents, `{"node":"n2","name":"a","new":{"x":1}} {"node":"n2"} {"node":"n1","name":"b"}`},
		{"jsonpath={.containers[*].node}", "", documents, "n2 n2 n1"},
		{"", "", parts(`{"lines": ["b"], "ranks": ["2"]}`, `{"lines": ["a\u001b[1m"], "ranks": ["1"]}`), "a\\x1b[1m\nb\n"},
	} {
		format, err := ParseFormat(c.format)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := Merge(&b, c.parts, Options{Format: format, Sort: c.sort}); err != nil {
			t.Errorf("%s: %v", c.format, err)
		}
		if got, want := strings.Fields(b.String()), strings.Fields(c.want); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q sorted by %q: got\n%s\nwant\n%s", c.format, c.sort, b.String(), c.want)
		}
	}
	for _, bad := range []string{
		`{"columns": [{"name": "NAME"}], "rows": [{"cells": []}]}`, `{"rows": [{"cells": ["x"]}]}`, "{", `{"items": 1}`,
		// What would pass for another node's.
		`{"columns": [{"name": "Node"}]}`, `{"items": [{"name": "a", "n\u006fde": "n9"}]}`,
		`{"columns": [` + strings.Repeat(`{"name": "A"},`, maxColumns) + `{"name": "A"}]}`,
	} {
		if _, ok, err := ReadPart([]byte("\x1e" + bad)); !ok || err == nil {
			t.Errorf("%.80s: %t, %v", bad, ok, err)
		}
	}
	if _, ok, err := ReadPart([]byte("text")); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}
