package enginestream

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/docker/docker/pkg/stdcopy"
)

// engineRecords is a stream of the engine, and what it has of each output.
func engineRecords(t *testing.T) (stream []byte, stdout, stderr string) {
	t.Helper()
	var all, out, errs bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		kind, copyOf := stdcopy.Stdout, &out
		if random.IntN(3) == 0 {
			kind, copyOf = stdcopy.Stderr, &errs
		}
		text := strings.Repeat(string(rune('a'+random.IntN(26))), []int{0, 1, 7, 8, 9, 32 << 10, 70000}[random.IntN(7)])
		if _, err := io.WriteString(io.MultiWriter(stdcopy.NewStdWriter(&all, kind), copyOf), text); err != nil {
			t.Fatal(err)
		}
	}
	return all.Bytes(), out.String(), errs.String()
}

func TestCopyOutputs(t *testing.T) {
	t.Parallel()
	all, stdout, stderr := engineRecords(t)
	random := rand.New(rand.NewPCG(3, 4))
	for name, r := range map[string]io.Reader{
		"at once":        bytes.NewReader(all),
		"with the end":   iotest.DataErrReader(bytes.NewReader(all)),
		"halves":         iotest.HalfReader(bytes.NewReader(all)),
		"byte by byte":   iotest.OneByteReader(bytes.NewReader(all)),
		"random lengths": randomReader{bytes.NewReader(all), random},
	} {
		var out, errs bytes.Buffer
		if err := CopyOutputs(&out, &errs, r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if out.String() != stdout || errs.String() != stderr {
			t.Errorf("%s: got %d and %d bytes, want %d and %d, the very same", name, out.Len(), errs.Len(), len(stdout), len(stderr))
		}
	}
}

// randomReader gives any number of bytes.
type randomReader struct {
	io.Reader
	random *rand.Rand
}

func (r randomReader) Read(b []byte) (int, error) {
	return r.Reader.Read(b[:min(len(b), 1+r.random.IntN(100000))])
}

// What came together is written together.
func TestCopyOutputsJoinsRecords(t *testing.T) {
	t.Parallel()
	var all bytes.Buffer
	for _, r := range []struct {
		kind stdcopy.StdType
		text string
	}{{stdcopy.Stdout, "a"}, {stdcopy.Stdout, "bc"}, {stdcopy.Stderr, "d"}, {stdcopy.Stdout, ""}, {stdcopy.Stdout, "e"}, {stdcopy.Stdout, "f"}} {
		if _, err := io.WriteString(stdcopy.NewStdWriter(&all, r.kind), r.text); err != nil {
			t.Fatal(err)
		}
	}
	all.WriteString("\x01\x00\x00") // cut off
	var got notes
	if err := CopyOutputs(got.of("1:"), got.of("2:"), &all); err != nil {
		t.Fatal(err)
	}
	if want := "1:abc 2:d 1:ef"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// notes lists writes.
type notes []string

func (n *notes) of(name string) io.Writer {
	return writeFunc(func(b []byte) (int, error) {
		*n = append(*n, name+string(b))
		return len(b), nil
	})
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(b []byte) (int, error) { return f(b) }

func TestCopyOutputsReportsTheEngine(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]string{
		"\x03\x00\x00\x00\x00\x00\x00\x04oops":          "error from the engine in its stream: oops",
		"\x01\x00\x00\x00\x00\x00\x00\x01x\x09abcdefgh": "the engine sent a record of unknown kind 9",
	} {
		if err := CopyOutputs(io.Discard, io.Discard, strings.NewReader(stream)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func BenchmarkCopyOutputs(b *testing.B) {
	var all bytes.Buffer
	for range 32 {
		_, _ = stdcopy.NewStdWriter(&all, stdcopy.Stdout).Write(make([]byte, 32<<10))
	}
	b.SetBytes(int64(all.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := CopyOutputs(io.Discard, io.Discard, bytes.NewReader(all.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}
