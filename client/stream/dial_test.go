package stream

import (
	"bufio"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// Opening a stream on a lost connection leaves no waiting goroutine. TestMain checks for leaks.
func TestOpenAfterTheEnd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"))
			}
			_ = conn.Close()
		}
	}()
	for range 20 {
		conn, err := dialSPDY(t.Context(), &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}, Options{}, remotecommand.StreamProtocolV4Name)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-conn.CloseChan():
		case <-time.After(time.Minute):
			t.Fatal("the end of the connection was not seen")
		}
		time.Sleep(time.Millisecond) // the library removes its streams asynchronously
		if _, err := conn.open(t.Context(), http.Header{}); err == nil {
			t.Error("a stream was opened on a connection that is gone")
		}
		conn.close()
	}
}
