package enginestream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/crishim/crishim/internal/spdyframe"
)

// Kinds of records, as the engine's stdcopy package numbers them.
const (
	kindStdin = iota // which no engine sends
	kindStdout
	kindStderr
	kindSystemError
)

// recordHeader is what stands before each record of the engine's stream of
// several outputs: which of them, three bytes of nothing, the length.
const recordHeader = 8

// demux takes apart the engine's stream of stdout and stderr. What came
// together of one output is written together: the engine's records are small,
// and each write becomes a frame to the client.
type demux struct {
	outputs [3]io.Writer // stdout, stderr, the engine's errors
	to      int          // which of them the record is for that is being read
	left    int          // of that record
}

// CopyOutputs is the engine's stdcopy.StdCopy with larger writes. It does not wait for the
// end of a record either.
func CopyOutputs(stdout, stderr io.Writer, r io.Reader) error {
	d := demux{outputs: [3]io.Writer{stdout, stderr, errorText{}}}
	var buf spdyframe.Buffer
	var pace spdyframe.Pace
	kept := make([]byte, 0, recordHeader) // the beginning of a header
	for {
		b := buf.Bytes()
		n, err := r.Read(b[copy(b, kept):])
		n += len(kept)
		rest, werr := d.write(b[:n])
		if werr != nil {
			return werr
		}
		kept = append(kept[:0], rest...)
		buf.Filled(n)
		pace.Wait(n)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// write passes on what b has of records, and returns the rest, the beginning of
// a header. Contents that belong together are moved together in b.
func (d *demux) write(b []byte) (rest []byte, err error) {
	start, end := 0, 0 // of what was moved together
	for at := 0; ; {
		if d.left > 0 {
			n := min(d.left, len(b)-at)
			end += copy(b[end:], b[at:at+n])
			at, d.left = at+n, d.left-n
		}
		head := b[at:]
		more := d.left == 0 && len(head) >= recordHeader
		next := d.to
		if more {
			next, err = outputOf(head[0])
			more = err == nil
		}
		if end > start && (!more || next != d.to) {
			if _, werr := d.outputs[d.to].Write(b[start:end]); werr != nil {
				return nil, werr
			}
			start = end
		}
		if !more {
			return head, err
		}
		d.to, d.left = next, int(binary.BigEndian.Uint32(head[4:]))
		at += recordHeader
		if start == end {
			start, end = at, at // nothing to join it to
		}
	}
}

// outputOf is which output a record of a kind is for.
func outputOf(kind byte) (int, error) {
	switch kind {
	case kindStdin, kindStdout:
		return 0, nil
	case kindStderr:
		return 1, nil
	case kindSystemError:
		return 2, nil
	}
	return 0, fmt.Errorf("the engine sent a record of unknown kind %d", kind)
}

// errorText is where the engine's own errors go: they end the stream.
type errorText struct{}

// Write implements io.Writer.
func (errorText) Write(b []byte) (int, error) {
	return 0, fmt.Errorf("error from the engine in its stream: %s", b)
}
