package spdyframe

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// writes notes the size of each write.
type writes struct {
	bytes.Buffer
	sizes []int
}

func (w *writes) Write(p []byte) (int, error) {
	w.sizes = append(w.sizes, len(p))
	return w.Buffer.Write(p)
}

func TestCopyTakesLargerPiecesWhereThereIsMuch(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
	var to writes
	if err := Copy(&to, struct{ io.Reader }{strings.NewReader(text)}); err != nil || to.String() != text {
		t.Fatalf("got %d bytes, %v", to.Len(), err)
	}
	if to.sizes[0] != smallest || to.sizes[1] != 2*smallest || to.sizes[len(to.sizes)-2] != largest {
		t.Errorf("got writes of %v", to.sizes)
	}
}

func TestCopyOfLittleKeepsItsBuffer(t *testing.T) {
	var to writes
	text := strings.Repeat("x", 100)
	if err := Copy(&to, iotest.OneByteReader(strings.NewReader(text))); err != nil || to.String() != text {
		t.Fatalf("got %q, %v", to.String(), err)
	}
	var buf Buffer
	for range 100 {
		buf.Filled(len(buf.Bytes()) - 1)
	}
	if got := len(buf.Bytes()); got != smallest {
		t.Errorf("the buffer has %d bytes", got)
	}
}

func TestCopySaysWhoFailed(t *testing.T) {
	reading, writing := errors.New("reading"), errors.New("writing")
	var to writes
	from := io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(reading))
	if err := Copy(&to, from); !errors.Is(err, reading) || to.String() != "ab" {
		t.Errorf("got %v after %q", err, to.String())
	}
	_, pipe := io.Pipe()
	_ = pipe.CloseWithError(writing)
	if err := Copy(pipe, strings.NewReader("ab")); err == nil {
		t.Error("the writer was closed, and Copy said nothing")
	}
	if err := Copy(halfWriter{}, strings.NewReader("ab")); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

type halfWriter struct{}

func (halfWriter) Write(p []byte) (int, error) { return len(p) / 2, nil }

// frames is a stream as the library has it.
type frames struct {
	io.Reader
	left [][]byte
}

func (f *frames) ReadData() ([]byte, error) {
	if len(f.left) == 0 {
		return nil, io.EOF
	}
	next := f.left[0]
	f.left = f.left[1:]
	return next, nil
}

func TestCopyPassesFramesOn(t *testing.T) {
	var to writes
	if err := Copy(&to, &frames{left: [][]byte{[]byte("ab"), {}, []byte("c")}}); err != nil || to.String() != "abc" {
		t.Errorf("got %q, %v", to.String(), err)
	}
}
