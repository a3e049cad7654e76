package stream

import (
	"context"
	"fmt"
	"net/http"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/crishim/crishim/shim/state"
)

const protocolPortForward = "portforward.k8s.io"

// PortForward implements the CRI call.
func (s *Server) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	for _, port := range r.GetPort() {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("port %d is not between 1 and 65535: %w", port, errdefs.ErrInvalidArgument)
		}
	}
	if _, err := s.running(ctx, r.GetPodSandboxId(), state.TypeSandbox); err != nil {
		return nil, err
	}
	url, err := s.url(ctx, kindPortForward, r)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PortForwardResponse{Url: url}, nil
}

// servePortForward carries any number of connections over one from the client,
// until the client leaves or the pod ends.
func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request, request *runtimeapi.PortForwardRequest) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	pod, err := s.pod(ctx, request.GetPodSandboxId())
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	conn, arrivals := s.openForward(w, r.WithContext(ctx))
	if conn == nil {
		return
	}
	go pod.watch(ctx, cancel)
	f := newForwarder(s, pod)
	f.run(ctx, conn, arrivals)
	cancel(nil) // ends the connections to the pod
	_ = conn.Close()
	f.work.Wait()
}

// openForward upgrades the connection, or tells the client why not.
func (s *Server) openForward(w http.ResponseWriter, r *http.Request) (httpstream.Connection, <-chan arrival) {
	if wsstream.IsWebSocketRequest(r) {
		return s.openTunnel(w, r)
	}
	if _, err := httpstream.Handshake(r, w, []string{protocolPortForward}); err != nil {
		return nil, nil
	}
	return s.upgradeSPDY(w, r)
}
