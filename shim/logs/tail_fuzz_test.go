package logs

import (
	"bytes"
	"testing"
)

// FuzzTail checks that a log of a killed shim continues after its last complete line and that only complete lines are
// read.
func FuzzTail(f *testing.F) {
	f.Add([]byte(stamp+" stdout F one\n"+stamp+" stdout F tw"), false)
	f.Add([]byte("\n\n"), true)
	f.Add([]byte("x"), false)
	f.Fuzz(func(t *testing.T, content []byte, all bool) {
		tail, whole, err := readTail(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		if whole < 0 || whole > int64(len(content)) || !bytes.HasSuffix(content[:whole], tail) || len(tail) > 0 && tail[len(tail)-1] != '\n' {
			t.Errorf("%d of %d bytes are whole, with a tail of %d", whole, len(content), len(tail))
		}
		if len(content) <= maxTail && (bytes.IndexByte(content[whole:], '\n') >= 0 || whole > 0 && content[whole-1] != '\n') {
			t.Errorf("the last whole line does not end at %d", whole)
		}
		pos := newPosition()
		note(pos, tail, all)
		if pos.since().After(pos.last) {
			t.Errorf("goes on after %v, the last line is of %v", pos.since(), pos.last)
		}
	})
}
