package logfile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test"
)

// heap runs f and returns the peak heap size. f calls sample to measure it.
func heap(f func(sample func())) uint64 {
	var most uint64
	var stats runtime.MemStats
	runtime.GC() // releases memory of earlier tests
	f(func() {
		runtime.ReadMemStats(&stats)
		most = max(most, stats.HeapInuse)
	})
	return most
}

// TestHugeSparseLog checks that a log that its container has extended to 4 TiB costs neither memory nor time, as the
// current file, as a rotated file, or before valid lines.
func TestHugeSparseLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, cri(1, "stdout", "F", "before"))
	if err := os.Truncate(path, 1<<40); errors.Is(err, os.ErrInvalid) || err != nil {
		test.Missing(t, "%v", err) // the file system does not support such sizes
	}
	appendTo(t, path, "\n"+cri(2, "stdout", "F", "after"))
	write(t, path+".1", cri(0, "stdout", "F", "rotated"))
	if err := os.Truncate(path+".1", 1<<40); err != nil {
		test.Missing(t, "%v", err)
	}
	for name, o := range map[string]Options{"all": {Tail: -1}, "tail": {Tail: 10}, "tail of a stream": {Tail: 10, Stream: Stdout}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var got strings.Builder
			most := heap(func(sample func()) {
				if err := Read(ctx, path, o, func(e Entry) error { sample(); got.Write(e.Text); return nil }); err != nil {
					t.Error(err)
				}
				sample()
			})
			if got.String() != "rotated\nbefore\nafter\n" || most > 64<<20 {
				t.Errorf("got %q with %d MiB", got.String(), most>>20)
			}
		})
	}
}

// TestCompressedBomb reads a rotated file that expands a thousandfold.
func TestCompressedBomb(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, cri(2, "stdout", "F", "after"))
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := io.WriteString(z, cri(1, "stdout", "F", "before")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	var mib bytes.Buffer // one MiB, written repeatedly
	z.Reset(&mib)
	if _, err := z.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), os.WriteFile(path+".1.gz", append(bomb.Bytes(), bytes.Repeat(mib.Bytes(), 48)...), 0o600)); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	most := heap(func(sample func()) {
		if err := Read(t.Context(), path, Options{Tail: -1}, func(e Entry) error { sample(); got.Write(e.Text); return nil }); err != nil {
			t.Error(err)
		}
	})
	if got.String() != "before\nafter\n" || most > 24<<20 {
		t.Errorf("got %q with %d MiB", got.String(), most>>20)
	}
}

// TestEndlessLine checks that a line above the limit is emitted in parts without loss.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	long := strings.Repeat("0123456789", 1<<20)
	write(t, path, cri(1, "stderr", "F", long)+cri(2, "stdout", "F", "after")+strings.Repeat("x", 3*maxLine)+"\n"+cri(3, "stdout", "F", "end"))
	var got strings.Builder
	err := Read(t.Context(), path, Options{Tail: -1}, func(e Entry) error {
		if len(e.Text) > maxLine {
			t.Errorf("an entry of %d bytes", len(e.Text))
		}
		got.Write(e.Text)
		return nil
	})
	if want := long + "\nafter\nend\n"; err != nil || got.String() != want {
		t.Errorf("got %d bytes, %v, want %d", got.Len(), err, len(want))
	}
}

// TestLastLinesAreBounded checks that --tail does not keep all parts of an endless line.
func TestLastLinesAreBounded(t *testing.T) {
	const most = 1 << 20
	last := Last{Lines: 2, max: most}
	part := make([]byte, 16<<10)
	for range 2 * most / len(part) {
		last.Add(Entry{Stream: Stdout, Text: part})
		if last.size > most {
			t.Fatalf("%d bytes are kept", last.size)
		}
	}
	size := 0
	err := last.Emit(func(e Entry) error { size += len(e.Text); return nil })
	if !errors.Is(err, errKept) || size > most || size < most/2 {
		t.Errorf("got %d bytes, %v", size, err)
	}
}

// TestEmptyPartsAreBounded checks that empty parts of a line count towards the limit, because they use memory too.
func TestEmptyPartsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	last := Last{Lines: 2, max: most}
	for range 2 * most / entrySize {
		last.Add(Entry{Stream: Stdout})
	}
	if got := len(last.entries); got > most/entrySize {
		t.Errorf("%d entries are kept", got)
	}
}

// TestReadEndsWithItsContext checks that reading stops even if the file has no valid entries.
func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, strings.Repeat("rubbish\n", 1<<16))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Read(ctx, path, Options{Tail: -1}, func(Entry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestReadFollowsNoLink checks links that a container puts in place of its log or of a rotated log.
func TestReadFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret, path := filepath.Join(dir, "secret"), filepath.Join(dir, "0.log")
	write(t, secret, cri(1, "stdout", "F", "secret"))
	if err := os.Symlink(secret, path); err != nil {
		t.Fatal(err)
	}
	emit := func(e Entry) error { t.Errorf("got %q", e.Text); return nil }
	if err := Read(t.Context(), path, Options{Tail: -1}, emit); err == nil {
		t.Error("a link was followed")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, "")
	o := Options{Tail: -1, Follow: true, Poll: time.Millisecond, Ended: func(context.Context) (bool, error) {
		return false, errors.Join(os.Remove(path), os.Symlink(secret, path))
	}}
	if err := Read(t.Context(), path, o, emit); err == nil {
		t.Error("a link in the place of a followed log was followed")
	}
}
