package logs

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const stamp = "2026-01-02T03:04:05.000000006Z"

// frame is a record as the engine sends it for a container without a terminal.
func frame(stream byte, payload string) string {
	header := make([]byte, 8)
	header[0] = stream
	binary.BigEndian.PutUint32(header[4:], uint32(len(payload)))
	return string(header) + payload
}

// lines reads every record and returns what goes to the file.
func lines(t *testing.T, src source) (got []string, err error) {
	t.Helper()
	for {
		r, err := src.next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, string(r.line()))
	}
}

func TestFramedRecords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", chunkSize)
	in := frame(1, stamp+" out\n") + frame(2, stamp+" err\n") + frame(1, stamp+" "+long) + frame(1, stamp+" end\n") + frame(1, stamp+" \n")
	want := []string{
		stamp + " stdout F out\n", stamp + " stderr F err\n",
		stamp + " stdout P " + long + "\n", stamp + " stdout F end\n", stamp + " stdout F \n",
	}
	got, err := lines(t, newSource(strings.NewReader(in), false))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestPlainRecords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", chunkSize)
	in := stamp + " one\r\n" + stamp + " " + long + stamp + " end\r\n" + stamp + " " + long + "\n" + stamp + " broken off"
	want := []string{
		stamp + " stdout F one\r\n", stamp + " stdout P " + long + "\n", stamp + " stdout F end\r\n", stamp + " stdout F " + long + "\n",
	}
	got, err := lines(t, newSource(strings.NewReader(in), true))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestBadRecords(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"no time":         frame(1, "text\n"),
		"not a time":      frame(1, "yesterday text\n"),
		"error of engine": frame(3, "something broke"),
		"absurd length":   "\x01\x00\x00\x00\xff\xff\xff\xff",
		"cut in a record": frame(1, stamp+" text\n")[:20],
		"cut in a header": "\x01\x00",
	} {
		if got, err := lines(t, newSource(strings.NewReader(in), false)); err == nil || len(got) > 0 {
			t.Errorf("%s: got %q, %v, want an error", name, got, err)
		}
	}
}

func FuzzSources(f *testing.F) {
	f.Add(frame(1, stamp+" out\n"), false)
	f.Add(stamp+" out\r\n", true)
	f.Fuzz(func(_ *testing.T, in string, tty bool) {
		src := newSource(strings.NewReader(in), tty)
		for {
			if _, err := src.next(); err != nil {
				return
			}
		}
	})
}
