package spdyframe

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/moby/spdystream"
	"k8s.io/streaming/pkg/httpstream"
)

// tellEvery is how often a frame goes through the library where there are many,
// so that it knows that the connection is in use.
const tellEvery = time.Second

// Stream is a stream of the library whose data goes past it, straight to the
// connection. The library wakes a goroutine with every frame to put off its
// idle timeout; that costs more than the frame.
type Stream struct {
	*spdystream.Stream
	frames *Writer
	told   atomic.Int64 // when the library last sent a frame, in Unix nanoseconds
}

// Stream returns a stream, of the connection that the Writer writes to, with
// the shorter way for its data.
func (w *Writer) Stream(s httpstream.Stream) httpstream.Stream {
	if s, ok := s.(*spdystream.Stream); ok && w.gather {
		return &Stream{Stream: s, frames: w}
	}
	return s
}

// Write implements io.Writer. The first piece goes through the library, which
// waits with it until the peer has answered the stream.
func (s *Stream) Write(p []byte) (int, error) {
	now := time.Now().UnixNano()
	if told := s.told.Load(); len(p) < vectored || len(p) > largest || told == 0 || now < told || now-told > int64(tellEvery) {
		n, err := s.Stream.Write(p)
		s.told.Store(now)
		return n, err
	}
	var head [header]byte
	binary.BigEndian.PutUint32(head[:], s.Identifier())
	binary.BigEndian.PutUint32(head[4:], uint32(len(p))) // without flags
	if err := s.frames.send(head[:], p); err != nil {
		return 0, err
	}
	return len(p), nil
}
