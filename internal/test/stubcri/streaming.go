package stubcri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cristreaming "k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streaming is the server behind the URLs of exec, attach and port-forward.
type streaming struct {
	cristreaming.Server
	http *http.Server
}

// startStreaming starts the streaming server at the first request for a URL, because most tests need none.
func (s *Server) startStreaming() (*streaming, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streaming != nil {
		return s.streaming, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := cristreaming.DefaultConfig
	config.Addr = l.Addr().String()
	config.BaseURL = &url.URL{Scheme: "http", Host: config.Addr}
	srv, err := cristreaming.NewServer(config, &streamRuntime{s})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.streaming = &streaming{Server: srv, http: &http.Server{Handler: srv, ReadHeaderTimeout: time.Minute}}
	go func() { _ = s.streaming.http.Serve(l) }()
	return s.streaming, nil
}

func (s *Server) running(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.containerByID(id)
	if err == nil && c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		err = status.Errorf(codes.FailedPrecondition, "container %q is not running, its state is %s", c.id, c.state)
	}
	return c, err
}

func (r *runtimeService) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := r.s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	st, err := r.s.startStreaming()
	if err != nil {
		return nil, err
	}
	return st.GetExec(req)
}

func (r *runtimeService) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if _, err := r.s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	st, err := r.s.startStreaming()
	if err != nil {
		return nil, err
	}
	return st.GetAttach(req)
}

func (r *runtimeService) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r.s.mu.Lock()
	p, err := r.s.podByID(req.GetPodSandboxId())
	if err == nil && !p.ready {
		err = status.Errorf(codes.FailedPrecondition, "pod sandbox %q is not ready", p.id)
	}
	r.s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	st, err := r.s.startStreaming()
	if err != nil {
		return nil, err
	}
	return st.GetPortForward(req)
}

func (r *runtimeService) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if _, err := r.s.running(req.GetContainerId()); err != nil {
		return nil, err
	}
	if req.GetTimeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.GetTimeout())*time.Second)
		defer cancel()
	}
	var stdout, stderr bytes.Buffer
	err := run(ctx, req.GetCmd(), nil, &stdout, &stderr)
	var start *startError
	switch {
	case !r.s.o.LogStartErrors:
	case ctx.Err() != nil:
		return &runtimeapi.ExecSyncResponse{Stderr: []byte("command timed out"), ExitCode: -1}, nil
	case errors.As(err, &start):
		return nil, status.Errorf(codes.Unknown, "command error: %s, stdout: , stderr: , exit code -1", start.logged())
	}
	if ctx.Err() != nil {
		return nil, status.Errorf(codes.DeadlineExceeded, "command %q did not end in %d s", req.GetCmd(), req.GetTimeout())
	}
	var exit utilexec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	resp := &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	if exit != nil {
		resp.ExitCode = int32(exit.ExitStatus())
	}
	return resp, nil
}

// startError is an OCI runtime's error for a command that could not be started.
type startError struct{ reason string }

func (e *startError) Error() string { return "OCI runtime exec failed: " + e.reason + ": unknown" }

// logged returns the OCI runtime's log line.
func (e *startError) logged() string {
	return fmt.Sprintf("time=%q level=error msg=%q\n", time.Now().Format(time.RFC3339), e.reason)
}

// run runs a command on this machine. If the command cannot be started, it returns a startError.
func run(ctx context.Context, cmd []string, in io.Reader, out, errw io.Writer) error {
	if len(cmd) == 0 {
		return errors.New("the command is empty")
	}
	c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	c.Stdin, c.Stdout, c.Stderr = in, out, errw
	c.WaitDelay = 5 * time.Second
	if c.Err != nil {
		return &startError{fmt.Sprintf("exec failed: unable to start container process: exec: %q: executable file not found in $PATH", cmd[0])}
	}
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code := exit.ExitCode()
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
		return utilexec.CodeExitError{Err: err, Code: code}
	case errors.Is(err, syscall.EACCES):
		return &startError{fmt.Sprintf("exec failed: unable to start container process: exec: %q: permission denied", cmd[0])}
	}
	return err
}

type streamRuntime struct{ s *Server }

func (r *streamRuntime) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errw io.WriteCloser, tty bool,
	_ <-chan remotecommand.TerminalSize,
) error {
	if _, err := r.s.running(id); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	var stderr io.Writer = errw
	if tty || errw == nil {
		stderr = out
	}
	err := run(ctx, cmd, in, out, stderr)
	var start *startError
	if r.s.o.LogStartErrors && errors.As(err, &start) {
		_, _ = io.WriteString(stderr, start.logged()) // fails if the client has gone
		return utilexec.CodeExitError{Err: start, Code: 255}
	}
	return err
}

// Attach echoes until the input or the container ends.
func (r *streamRuntime) Attach(ctx context.Context, id string, in io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize,
) error {
	c, err := r.s.running(id)
	if err != nil {
		return err
	}
	echoed := make(chan struct{})
	if in != nil {
		go func() {
			defer close(echoed)
			_, _ = io.Copy(out, in)
		}()
	}
	select {
	case <-echoed:
	case <-c.ended:
	case <-r.s.stop:
	case <-ctx.Done():
	}
	return nil
}

func (r *streamRuntime) PortForward(ctx context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

// sendEach sends a list with one object per message.
func sendEach[T, R any](s *Server, out grpc.ServerStreamingServer[R], list func() []T, wrap func([]T) *R) error {
	s.mu.Lock()
	all := list()
	s.mu.Unlock()
	for _, x := range all {
		if err := out.Send(wrap([]T{x})); err != nil {
			return err
		}
	}
	return nil
}

func (r *runtimeService) StreamPodSandboxes(req *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	return sendEach(r.s, out, func() []*runtimeapi.PodSandbox { return r.s.listPods(req.GetFilter()) },
		func(l []*runtimeapi.PodSandbox) *runtimeapi.StreamPodSandboxesResponse {
			return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: l}
		})
}

func (r *runtimeService) StreamContainers(req *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	return sendEach(r.s, out, func() []*runtimeapi.Container { return r.s.listContainers(req.GetFilter()) },
		func(l []*runtimeapi.Container) *runtimeapi.StreamContainersResponse {
			return &runtimeapi.StreamContainersResponse{Containers: l}
		})
}

func (i *imageService) StreamImages(req *runtimeapi.StreamImagesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	return sendEach(i.s, out, func() []*runtimeapi.Image { return i.s.listImages(req.GetFilter().GetImage().GetImage()) },
		func(l []*runtimeapi.Image) *runtimeapi.StreamImagesResponse {
			return &runtimeapi.StreamImagesResponse{Images: l}
		})
}

func (r *runtimeService) StreamContainerStats(req *runtimeapi.StreamContainerStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	return sendEach(r.s, out, func() []*runtimeapi.ContainerStats { return r.s.listStats(req.GetFilter()) },
		func(l []*runtimeapi.ContainerStats) *runtimeapi.StreamContainerStatsResponse {
			return &runtimeapi.StreamContainerStatsResponse{ContainerStats: l}
		})
}

func (r *runtimeService) StreamPodSandboxStats(req *runtimeapi.StreamPodSandboxStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	return sendEach(r.s, out, func() []*runtimeapi.PodSandboxStats { return r.s.listPodStats(req.GetFilter()) },
		func(l []*runtimeapi.PodSandboxStats) *runtimeapi.StreamPodSandboxStatsResponse {
			return &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: l}
		})
}
