package spdyframe

import (
	"errors"
	"io"
)

const (
	smallest = 32 << 10
	largest  = 256 << 10
)

// Buffer is memory to read into. It grows while reads fill it: each frame costs
// several hand-offs between goroutines whatever its size, and a stream that
// carries little needs no large memory.
type Buffer struct{ b []byte }

// Bytes is what to read into next.
func (b *Buffer) Bytes() []byte {
	if b.b == nil {
		b.b = make([]byte, smallest)
	}
	return b.b
}

// Filled tells how much of it a read has filled.
func (b *Buffer) Filled(n int) {
	if n == len(b.b) && n < largest {
		b.b = make([]byte, 2*n)
	}
}

// Copy is io.Copy for streams: it writes large pieces where the reader has
// them. A SPDY stream's frames are passed on as they came, without a copy.
func Copy(to io.Writer, from io.Reader) error {
	next, _ := Reader(from)
	for {
		p, err := next()
		if len(p) > 0 {
			if n, err := to.Write(p); err != nil {
				return err
			} else if n < len(p) {
				return io.ErrShortWrite
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Reader returns a function that gives what came next: a whole frame of a SPDY
// stream that nobody has read from, which may be kept, or what a read of
// anything else gave, which is good until the next call.
func Reader(from io.Reader) (next func() ([]byte, error), kept bool) {
	if frames, ok := from.(interface{ ReadData() ([]byte, error) }); ok {
		return frames.ReadData, true
	}
	var buf Buffer
	return func() ([]byte, error) {
		b := buf.Bytes()
		n, err := from.Read(b)
		buf.Filled(n)
		return b[:n], err
	}, false
}
