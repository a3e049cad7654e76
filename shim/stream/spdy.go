package stream

import (
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/moby/spdystream"
	spdyframe "github.com/moby/spdystream/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/crishim/crishim/internal/frames"
)

// The headers of a stream: clients send three short ones.
const (
	maxStreamHeaders = 16
	maxStreamHeader  = 1 << 10
)

// upgradeSPDY makes a SPDY connection of an HTTP request's. It returns nil when the client
// does not ask for one, which has been told, or is gone.
func upgradeSPDY(w http.ResponseWriter, r *http.Request, accept func(*spdystream.Stream) bool) *spdystream.Connection {
	if !httpstream.IsUpgradeRequest(r) || !strings.EqualFold(r.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		http.Error(w, "unable to upgrade: the request does not ask for "+spdy.HeaderSpdy31, http.StatusBadRequest)
		return nil
	}
	w.Header().Add(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	w.Header().Add(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	return serveSPDY(conn, buffered, accept)
}

// serveSPDY speaks SPDY on a connection until either end closes it. It answers each stream
// that the client opens, and resets those that are not accepted.
func serveSPDY(conn net.Conn, from io.Reader, accept func(*spdystream.Stream) bool) *spdystream.Connection {
	served, err := spdystream.NewConnectionWithOptions(frames.NewConn(conn, from), true,
		spdyframe.WithMaxHeaderCount(maxStreamHeaders), spdyframe.WithMaxHeaderFieldSize(maxStreamHeader))
	if err != nil { // out of memory for zlib
		_ = conn.Close()
		return nil
	}
	go served.Serve(func(s *spdystream.Stream) {
		// A write to a stream that has no answer, because the client has gone, would wait
		// for it forever.
		if s.SendReply(http.Header{}, false) != nil || !accept(s) {
			_ = s.Reset()
		}
	})
	go func() {
		<-served.CloseChan()
		_ = conn.Close() // the client has said goodbye, or sent what is no SPDY: nothing reads on
	}()
	return served
}
