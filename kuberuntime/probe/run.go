package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

type Target struct {
	ContainerID string
	PodIP       string
	Ports       []v1.ContainerPort
}

// Exec runs a command in a container. It returns an error that describes the failure of the command, or an UnknownError
// if the result is unknown.
type Exec func(ctx context.Context, containerID string, cmd []string, timeout time.Duration) error

// UnknownError is the error of an attempt without a result, for example if the runtime did not answer or a port name is
// unknown.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return e.Err.Error() }

func (e *UnknownError) Unwrap() error { return e.Err }

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
		return HTTPGet(ctx, "kube-probe/crishim", p.HTTPGet, t)
	case p.TCPSocket != nil:
		port, err := namedPort(p.TCPSocket.Port, t.Ports)
		if err != nil {
			return err
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(cmp.Or(p.TCPSocket.Host, t.PodIP), strconv.Itoa(port)))
		if err != nil {
			return err
		}
		return conn.Close()
	case p.GRPC != nil:
		return grpcHealth(ctx, net.JoinHostPort(t.PodIP, strconv.Itoa(int(p.GRPC.Port))), p.GRPC.Service)
	}
	return &UnknownError{errors.New("no handler")}
}

// HTTPGet sends the request of a probe or hook. Missing headers default to the kubelet's. A redirect to another host is
// a success, because the server has answered.
func HTTPGet(ctx context.Context, agent string, h *v1.HTTPGetAction, t Target) error {
	const maxBody = 10 << 10 // limit of the response body
	port, err := namedPort(h.Port, t.Ports)
	if err != nil {
		return err
	}
	at, err := url.Parse(h.Path) // the path may have a query
	if err != nil {
		at = &url.URL{Path: h.Path}
	}
	at.Scheme, at.Host = strings.ToLower(string(h.Scheme)), net.JoinHostPort(cmp.Or(h.Host, t.PodIP), strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return &UnknownError{err}
	}
	setHeaders(req, agent, h.HTTPHeaders)
	resp, err := newClient().Do(req)
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
	text := strings.TrimSpace(string(body))
	if text != "" {
		text = ": " + text[:min(len(text), 256)]
	}
	return fmt.Errorf("%s answered %s%s", at, resp.Status, text)
}

func grpcHealth(ctx context.Context, address string, service *string) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/crishim"),
		grpc.WithMaxHeaderListSize(64<<10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<10)))
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: ptr.Deref(service, "")})
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

// setHeaders sets the manifest's headers, and defaults User-Agent and Accept to the kubelet's. An empty User-Agent or
// Accept in the manifest drops the header. Any other empty header is sent.
func setHeaders(req *http.Request, agent string, headers []v1.HTTPHeader) {
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	if _, set := req.Header["User-Agent"]; !set {
		req.Header.Set("User-Agent", agent)
	}
	if accept, set := req.Header["Accept"]; !set {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept")
	}
}

// newClient returns a client for one request to a container. As in the kubelet, certificates are not verified. The size
// of response headers is limited.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the kubelet does not verify it either
			DisableKeepAlives:      true,                                  // an idle connection would outlive the pod
			DisableCompression:     true,                                  // the manifest sets Accept-Encoding
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			switch {
			case next.URL.Hostname() != via[0].URL.Hostname():
				return http.ErrUseLastResponse // like the kubelet, do not follow a redirect to another host
			case len(via) >= maxRedirects:
				return fmt.Errorf("stopped after %d redirects", maxRedirects)
			}
			return nil
		},
	}
}

const maxRedirects = 10

func namedPort(port intstr.IntOrString, ports []v1.ContainerPort) (int, error) {
	if port.Type == intstr.Int {
		return port.IntValue(), nil
	}
	for _, p := range ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), nil
		}
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return n, nil
	}
	return 0, &UnknownError{fmt.Errorf("the container has no port %q", port.StrVal)}
}
