package frames

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/moby/spdystream/spdy"
)

// Frames come out as they went in, but for data frames that are too long: those come in
// pieces, and the last one has the flags.
func TestConnRead(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	writer, err := spdy.NewFramer(&wire, nil)
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), (2*Size+16)/16)
	for _, frame := range []spdy.Frame{
		&spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"Streamtype": {"stdin"}}},
		&spdy.DataFrame{StreamId: 1, Data: []byte("short")},
		&spdy.DataFrame{StreamId: 1, Data: long, Flags: spdy.DataFlagFin},
		&spdy.DataFrame{StreamId: 1, Data: long[:Size], Flags: spdy.DataFlagFin},
		&spdy.DataFrame{StreamId: 1, Flags: spdy.DataFlagFin},
		&spdy.SynReplyFrame{StreamId: 1},
		&spdy.PingFrame{Id: 7},
		&spdy.RstStreamFrame{StreamId: 1, Status: spdy.Cancel},
		&spdy.SynStreamFrame{StreamId: 3},
		&spdy.GoAwayFrame{LastGoodStreamId: 1},
	} {
		if err := writer.WriteFrame(frame); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := spdy.NewFramer(nil, NewConn(nil, &wire))
	if err != nil {
		t.Fatal(err)
	}
	var lengths, ends []int
	var data []byte
	for {
		frame, err := reader.ReadFrame()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := frame.(*spdy.DataFrame); ok {
			if f.Flags != 0 {
				ends = append(ends, len(lengths))
			}
			data, lengths = append(data, f.Data...), append(lengths, len(f.Data))
		}
	}
	want := append(append([]byte("short"), long...), long[:Size]...)
	if !bytes.Equal(data, want) {
		t.Errorf("got %d bytes of data, want %d", len(data), len(want))
	}
	if got, want := lengths, []int{5, Size, Size, 16, Size, 0}; !slices.Equal(got, want) {
		t.Errorf("got frames of %v, want %v", got, want)
	}
	if got, want := ends, []int{3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("the stream ends with frames %v, want %v", got, want)
	}
}

// Whatever a peer sends, the library and Conn agree about where frames begin. If they did
// not, a frame could be hidden in another.
func FuzzConn(f *testing.F) {
	f.Add([]byte{0x80, 3, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff})
	f.Add([]byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, wire []byte) {
		conn := NewConn(nil, bytes.NewReader(wire))
		reader, err := spdy.NewFramer(nil, conn)
		if err != nil {
			t.Fatal(err)
		}
		for {
			frame, err := reader.ReadFrame()
			if err != nil {
				return
			}
			if len(conn.unread) > 0 || conn.payload > 0 {
				t.Fatalf("%d bytes are left of %T", len(conn.unread)+int(conn.payload), frame)
			}
		}
	})
}
