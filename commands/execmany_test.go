package commands

import (
	"bytes"
	"sync"
	"testing"
)

func TestLineWriter(t *testing.T) {
	cases := map[string]struct {
		writes []string
		want   string
	}{
		"nothing":           {nil, ""},
		"one line":          {[]string{"a\n"}, "p: a\n"},
		"in pieces":         {[]string{"a", "b", "c\nd", "e\n"}, "p: abc\np: de\n"},
		"several lines":     {[]string{"a\n\nb\n"}, "p: a\np: \np: b\n"},
		"an unfinished end": {[]string{"a\nb"}, "p: a\np: b\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := &lineWriter{to: &out, lock: new(sync.Mutex), prefix: "p: "}
			for _, text := range c.writes {
				if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
					t.Fatalf("got %d, %v", n, err)
				}
			}
			if err := w.flush(); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
}
