package frames

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/moby/spdystream"
	"github.com/moby/spdystream/spdy"
)

// Frames pass unchanged, except data frames that are too long. They are split, and the last piece has the flags.
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
		if errors.Is(err, io.EOF) {
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

// The library and Conn agree on the start of each frame for any input. Otherwise a frame could be hidden in another.
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

// apart writes the pieces of a frame separately, like the library.
type apart struct{ *Conn }

func (c apart) Write(b []byte) (int, error) { return c.Conn.Conn.Write(b) }

// BenchmarkConn compares joined and separate writes of a frame.
func BenchmarkConn(b *testing.B) {
	for _, size := range []int{100, 32 << 10, Size} {
		for name, wrap := range map[string]func(net.Conn) net.Conn{
			"apart":  func(c net.Conn) net.Conn { return apart{NewConn(c, c)} },
			"joined": func(c net.Conn) net.Conn { return NewConn(c, c) },
		} {
			b.Run(fmt.Sprint(size, " bytes ", name), func(b *testing.B) {
				client, server := connected(b)
				received := make(chan error)
				accepted, err := spdystream.NewConnection(wrap(server), true)
				if err != nil {
					b.Fatal(err)
				}
				go accepted.Serve(func(s *spdystream.Stream) {
					_ = s.SendReply(http.Header{}, false) // the client waits for it
					go func() { received <- Copy(io.Discard, s) }()
				})
				conn, err := spdystream.NewConnection(wrap(client), false)
				if err != nil {
					b.Fatal(err)
				}
				go conn.Serve(spdystream.NoOpStreamHandler)
				s, err := conn.CreateStream(http.Header{}, nil, false)
				if err := errors.Join(err, s.Wait()); err != nil {
					b.Fatal(err)
				}
				data := make([]byte, size)
				b.SetBytes(int64(size))
				for b.Loop() {
					if _, err := s.Write(data); err != nil {
						b.Fatal(err)
					}
				}
				if err := errors.Join(s.Close(), <-received); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func connected(b *testing.B) (client, server net.Conn) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

type pieces struct {
	net.Conn
	written []string
}

func (p *pieces) Write(b []byte) (int, error) {
	p.written = append(p.written, string(b))
	return len(b), nil
}

// Each frame is written in one call, whatever its type.
func TestConnWrite(t *testing.T) {
	t.Parallel()
	var out pieces
	writer, err := spdy.NewFramer(NewConn(&out, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, frame := range []spdy.Frame{
		&spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"Streamtype": {"stdin"}}},
		&spdy.DataFrame{StreamId: 1, Data: []byte("data")},
		&spdy.DataFrame{StreamId: 1, Flags: spdy.DataFlagFin},
		&spdy.PingFrame{Id: 7},
		&spdy.GoAwayFrame{LastGoodStreamId: 1},
	} {
		if err := writer.WriteFrame(frame); err != nil {
			t.Fatal(err)
		}
		if len(out.written) != i+1 {
			t.Fatalf("%T: got %q", frame, out.written)
		}
	}
	if got, want := out.written[1], "\x00\x00\x00\x01\x00\x00\x00\x04data"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
