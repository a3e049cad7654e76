package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/node"
	"github.com/crishim/crishim/shim/private"
)

type aboutEngine struct {
	version func() (types.Version, error)
	info    system.Info
}

func (e aboutEngine) ServerVersion(context.Context) (types.Version, error) { return e.version() }
func (e aboutEngine) Ping(context.Context) (types.Ping, error) {
	version, err := e.version()
	return types.Ping{APIVersion: version.APIVersion}, err
}
func (e aboutEngine) Info(context.Context) (system.Info, error) { return e.info, nil }

func goodVersion() (types.Version, error) {
	return types.Version{Version: "20.10.24", APIVersion: "1.41"}, nil
}

func serveService(t *testing.T, log *slog.Logger, a *criService) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s := newServer(log, nil, a, &private.Service{})
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
	})
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestBothServiceNamesAnswer(t *testing.T) {
	conn := serveService(t, slog.New(slog.DiscardHandler), &criService{nodeService: node.New(node.Options{Engine: aboutEngine{version: goodVersion}})})
	for _, name := range []string{"runtime.v1", "runtime.v1alpha2"} {
		var v runtimeapi.VersionResponse
		if err := conn.Invoke(t.Context(), "/"+name+".RuntimeService/Version", &runtimeapi.VersionRequest{}, &v); err != nil {
			t.Fatal(err)
		}
		if v.GetRuntimeName() != "docker" || v.GetRuntimeVersion() != "20.10.24" || v.GetVersion() != "0.1.0" || v.GetRuntimeApiVersion() != "v1" {
			t.Errorf("%s: got %v", name, &v)
		}
	}
}

func TestWhatNoServiceHasIsUnimplemented(t *testing.T) {
	conn := serveService(t, slog.New(slog.DiscardHandler), &criService{})
	_, err := runtimeapi.NewRuntimeServiceClient(conn).CheckpointContainer(t.Context(), &runtimeapi.CheckpointContainerRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}

func TestAPanicIsAnErrorAndIsLogged(t *testing.T) {
	var log bytes.Buffer
	conn := serveService(t, slog.New(slog.NewTextHandler(&log, nil)), &criService{nodeService: node.New(node.Options{Engine: aboutEngine{
		version: func() (types.Version, error) { panic("odd engine") },
	}})})
	_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{})
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "odd engine") {
		t.Errorf("got %v, want Internal", err)
	}
	if !strings.Contains(log.String(), "/runtime.v1.RuntimeService/Version") {
		t.Errorf("got log %q, want the method in it", log.String())
	}
}

// The hairpin mode is set in this host's /sys, so it needs a local engine.
func TestHairpinNeedsTheEnginesHost(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{pluginAuto, PluginBridge} {
		o := Options{Network: NetworkOptions{Plugin: plugin, Hairpin: "hairpin-veth"}}
		for host, ok := range map[string]bool{"tcp://192.0.2.1:2375": false, "ssh://root@192.0.2.1": false, "unix:///run/docker.sock": true} {
			if _, err := newNetworks(o, docker.Endpoint{Host: host}); (err == nil) != ok || !ok && !strings.Contains(err.Error(), host) {
				t.Errorf("plugin %q on %s: got %v", plugin, host, err)
			}
		}
		o.Network.Hairpin = "none"
		if _, err := newNetworks(o, docker.Endpoint{Host: "tcp://192.0.2.1:2375"}); err != nil {
			t.Errorf("no hairpin: %v", err)
		}
	}
}

// Without its streaming server, the server would return dead URLs.
func TestServeEndsWithItsStreamingServer(t *testing.T) {
	port := test.FreePort(t)
	s, err := New(Options{Daemon: true, Engine: docker.Options{Host: "unix:///nonexistent/docker.sock"}, StreamAddress: fmt.Sprintf("127.0.0.1:%d", port)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(bufconn.Listen(1 << 10)) }()
	endListener(t, port)
	select {
	case err := <-served:
		if err == nil || !strings.Contains(err.Error(), "streaming server") {
			t.Errorf("got %v, want the streaming server named", err)
		}
	case <-time.After(time.Minute):
		t.Error("the shim goes on serving")
	}
}

// endListener makes a listening socket of this process fail.
func endListener(t *testing.T, port int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		address, err := unix.Getsockname(fd)
		if in, ok := address.(*unix.SockaddrInet4); err == nil && ok && in.Port == port {
			if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("nobody listens on port %d", port)
}

func TestToStatus(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("while testing: %w", err) }
	for name, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"nothing":                    {nil, codes.OK},
		"not found":                  {wrap(errdefs.ErrNotFound), codes.NotFound},
		"invalid":                    {wrap(errdefs.ErrInvalidArgument), codes.InvalidArgument},
		"exists":                     {wrap(errdefs.ErrAlreadyExists), codes.AlreadyExists},
		"conflict":                   {wrap(errdefs.ErrConflict), codes.FailedPrecondition},
		"precondition":               {wrap(errdefs.ErrFailedPrecondition), codes.FailedPrecondition},
		"permission":                 {wrap(errdefs.ErrPermissionDenied), codes.PermissionDenied},
		"unauthorized":               {wrap(errdefs.ErrUnauthenticated), codes.Unauthenticated},
		"exhausted":                  {wrap(errdefs.ErrResourceExhausted), codes.ResourceExhausted},
		"not implemented":            {wrap(errdefs.ErrNotImplemented), codes.Unimplemented},
		"unavailable":                {wrap(errdefs.ErrUnavailable), codes.Unavailable},
		"internal":                   {wrap(errdefs.ErrInternal), codes.Internal},
		"cancelled":                  {wrap(context.Canceled), codes.Canceled},
		"deadline":                   {wrap(context.DeadlineExceeded), codes.DeadlineExceeded},
		"the engine is away":         {wrap(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), codes.Unavailable},
		"a status of its own":        {status.Error(codes.DataLoss, "x"), codes.DataLoss},
		"a status in a sentence":     {wrap(status.Error(codes.OutOfRange, "x")), codes.OutOfRange},
		"several, the first counts":  {errors.Join(wrap(errdefs.ErrNotFound), errdefs.ErrInternal), codes.NotFound},
		"an error without any class": {errors.New("x"), codes.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := toStatus(t.Context(), c.err)
			if status.Code(got) != c.want {
				t.Errorf("got %v, want %v", status.Code(got), c.want)
			}
			if c.err != nil && !errors.Is(c.err, status.Error(codes.DataLoss, "x")) && status.Convert(got).Message() == "" {
				t.Error("the message is lost")
			}
		})
	}
}

func TestToStatusOfACancelledRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := status.Code(toStatus(ctx, errors.New("connection cut"))); got != codes.Canceled {
		t.Errorf("got %v, want Canceled", got)
	}
}

func TestClassIsLeftOutOfTheSentence(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("no such thing: %w", errdefs.ErrNotFound), "no such thing"},
		{fmt.Errorf("stop: %w", fmt.Errorf("too soon: %w", errdefs.ErrFailedPrecondition)), "stop: too soon"},
		{errors.New("the engine said: not found"), "the engine said: not found"},
		{errdefs.ErrNotFound, "not found"},
		{fmt.Errorf("%w: %w", errors.New("several"), errdefs.ErrInternal), "several"},
		{fmt.Errorf("pull x: %w", engineSays{"unauthorized", errdefs.ErrUnauthenticated}), "pull x: unauthorized"},
	} {
		if got := status.Convert(toStatus(t.Context(), tc.err)).Message(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// engineSays is an error of the engine's client: it has the engine's text, and its class is visible through Is.
type engineSays struct {
	text  string
	class error
}

func (e engineSays) Error() string        { return e.text }
func (e engineSays) Is(target error) bool { return errors.Is(e.class, target) }

// TestStopLeavesWhatDoesNotEnd checks that a hanging engine delays the end of a command only briefly.
func TestStopLeavesWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	i := &interceptor{log: slog.New(slog.DiscardHandler), changed: func() {}}
	s := &server{Server: grpc.NewServer(grpc.UnaryInterceptor(i.unary)), abandoned: make(chan struct{})}
	begun, end, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "runtime.v1.RuntimeService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "StartContainer",
		Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			defer close(finished)
			req := &runtimeapi.StartContainerRequest{}
			if err := decode(req); err != nil {
				return nil, err
			}
			return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: "/runtime.v1.RuntimeService/StartContainer"}, func(context.Context, any) (any, error) {
				close(begun)
				<-end // ignores its context
				return &runtimeapi.StartContainerResponse{}, nil
			})
		},
	}}}, nil)
	l := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).StartContainer(t.Context(), &runtimeapi.StartContainerRequest{})
		answered <- err
	}()
	<-begun
	if err := s.stop(10*time.Millisecond, 10*time.Millisecond); err == nil || !strings.Contains(err.Error(), "has not answered all requests") {
		t.Errorf("got %v, want what was left", err)
	}
	<-s.abandoned
	if err := <-answered; err == nil {
		t.Error("a request that was cut off has an answer")
	}
	close(end)
	if err := <-served; err != nil {
		t.Error(err)
	}
	<-finished
	if err := s.stop(time.Minute, time.Minute); err != nil {
		t.Errorf("stopped again: %v", err)
	}
}
