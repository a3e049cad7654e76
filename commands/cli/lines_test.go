package cli

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
			w := NewPrefixWriter(&out, new(sync.Mutex), "p: ")
			for _, text := range c.writes {
				if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
					t.Fatalf("got %d, %v", n, err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
}

// TestALineOfOutputWithoutAnEnd: a writer buffers at most maxLine bytes of a line.
func TestALineOfOutputWithoutAnEnd(t *testing.T) {
	var out bytes.Buffer
	w := NewPrefixWriter(&out, new(sync.Mutex), "web: ")
	part := bytes.Repeat([]byte("x"), 32<<10)
	for range 3 * maxLine / len(part) {
		if _, err := w.Write(part); err != nil || len(w.rest) > maxLine {
			t.Fatalf("%d bytes are kept, %v", len(w.rest), err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(out.Bytes(), []byte("x")); got != 3*maxLine || bytes.Count(out.Bytes(), []byte("web: ")) != 3 {
		t.Errorf("got %d bytes in %d lines", got, bytes.Count(out.Bytes(), []byte("web: ")))
	}
}
