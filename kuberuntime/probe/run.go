package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// Target is what a probe is run against.
type Target struct {
	ContainerID string
	PodIP       string
	Ports       []v1.ContainerPort
}

// Exec runs a command in a container; a failing command is an error that describes it, and all that
// is no verdict of the command an UnknownError.
type Exec func(ctx context.Context, containerID string, cmd []string, timeout time.Duration) error

// UnknownError is an attempt that could not be made, or whose outcome nobody knows: the runtime did
// not answer, a port has no number. It says nothing about the container.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return e.Err.Error() }

func (e *UnknownError) Unwrap() error { return e.Err }

// Run makes one attempt. nil is success.
func Run(ctx context.Context, p *v1.Probe, t Target, exec Exec) error {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	if p.Exec != nil {
		return exec(ctx, t.ContainerID, p.Exec.Command, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := runNetwork(ctx, p, t)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", timeout)
	}
	return err
}

func runNetwork(ctx context.Context, p *v1.Probe, t Target) error {
	switch {
	case p.HTTPGet != nil:
		return httpGet(ctx, p.HTTPGet, t)
	case p.TCPSocket != nil:
		port, err := Port(p.TCPSocket.Port, t.Ports)
		if err != nil {
			return &UnknownError{err}
		}
		return tcpConnect(ctx, hostOr(p.TCPSocket.Host, t.PodIP), port)
	case p.GRPC != nil:
		return grpcHealth(ctx, net.JoinHostPort(t.PodIP, strconv.Itoa(int(p.GRPC.Port))), p.GRPC.Service)
	}
	return &UnknownError{errors.New("no handler")}
}

func hostOr(host, podIP string) string {
	if host != "" {
		return host
	}
	return podIP
}

// maxBody is as much of an answer as is read.
const maxBody = 10 << 10

func httpGet(ctx context.Context, h *v1.HTTPGetAction, t Target) error {
	port, err := Port(h.Port, t.Ports)
	if err != nil {
		return &UnknownError{err}
	}
	url := URL(strings.ToLower(string(h.Scheme)), hostOr(h.Host, t.PodIP), port, h.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), nil)
	if err != nil {
		return &UnknownError{err}
	}
	SetHeaders(req, "kube-probe/crishim", h.HTTPHeaders)
	resp, err := NewClient().Do(req) // a redirect to another host says that the server answers: success
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	return fmt.Errorf("%s answered %s%s", url, resp.Status, said(body))
}

func said(body []byte) string {
	text := strings.TrimSpace(string(body))
	if text == "" {
		return ""
	}
	return ": " + text[:min(len(text), 256)]
}

func tcpConnect(ctx context.Context, host string, port int) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

func grpcHealth(ctx context.Context, address string, service *string) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/crishim"),
		grpc.WithMaxHeaderListSize(64<<10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<10)))
	if err != nil {
		return err
	}
	defer conn.Close()
	req := &grpc_health_v1.HealthCheckRequest{}
	if service != nil {
		req.Service = *service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, req)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return errors.New("the server has no health service (grpc.health.v1.Health)")
	case err != nil:
		return err
	case resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return fmt.Errorf("the service is %s", resp.GetStatus())
	}
	return nil
}
