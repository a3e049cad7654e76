package stream

import (
	"fmt"
	"io"
	"net/http"

	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Numbers of the channels in a remote command WebSocket.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelResize
)

const (
	base64Protocol   = "base64.channel.k8s.io"
	base64ProtocolV4 = "v4." + base64Protocol
)

// openWebSocket upgrades to one of the channel protocols. Without any named the
// first version is meant.
func (s *Server) openWebSocket(w http.ResponseWriter, r *http.Request, want wanted) (*session, error) {
	channels := []wsstream.ChannelType{
		channelStdin:  channelType(want.stdin, wsstream.ReadChannel),
		channelStdout: channelType(want.stdout, wsstream.WriteChannel),
		channelStderr: channelType(want.stderr, wsstream.WriteChannel),
		channelError:  wsstream.WriteChannel,
		channelResize: wsstream.ReadChannel,
	}
	protocols := map[string]wsstream.ChannelProtocolConfig{}
	for _, name := range []string{"", protocolV1, protocolV4, protocolV5} {
		protocols[name] = wsstream.ChannelProtocolConfig{Binary: true, Channels: channels}
	}
	for _, name := range []string{base64Protocol, base64ProtocolV4} {
		protocols[name] = wsstream.ChannelProtocolConfig{Channels: channels}
	}
	conn := wsstream.NewConn(protocols)
	conn.SetIdleTimeout(s.opts.IdleTimeout)
	protocol, streams, err := conn.Open(w, r)
	if err != nil {
		return nil, fmt.Errorf("upgrade to websocket: %w", err)
	}
	asJSON := protocol == protocolV4 || protocol == base64ProtocolV4 || protocol == protocolV5
	out := webSocketSession(conn, streams, want, asJSON)
	if want.tty {
		out.resize = resizes(r.Context(), streams[channelResize])
	} else {
		// Nobody reads sizes then, and an unread channel holds up all others.
		go func() { _, _ = io.Copy(io.Discard, streams[channelResize]) }()
	}
	return out, nil
}

func channelType(open bool, kind wsstream.ChannelType) wsstream.ChannelType {
	if open {
		return kind
	}
	return wsstream.IgnoreChannel
}

func webSocketSession(conn *wsstream.Conn, streams []io.ReadWriteCloser, want wanted, asJSON bool) *session {
	out := &session{}
	if want.stdin {
		out.stdin = streams[channelStdin]
	}
	if want.stdout {
		out.stdout = streams[channelStdout]
	}
	if want.stderr {
		out.stderr = streams[channelStderr]
	}
	out.finish = func(outcome error) {
		_ = writeOutcome(streams[channelError], asJSON, outcome)
		_ = conn.Close()
	}
	// An empty message tells the client that the connection stands.
	first := channelError
	switch {
	case want.stdout:
		first = channelStdout
	case want.stderr:
		first = channelStderr
	}
	_, _ = streams[first].Write(nil)
	return out
}
