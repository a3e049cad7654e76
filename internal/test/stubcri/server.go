// Package stubcri is an in-memory CRI runtime for tests: a real gRPC server on a unix socket with pods, containers and
// images that change state as in a real runtime, filtered lists, events, stats, log files and a real streaming server.
//
// Limits: a started container runs no process and stays running until it is stopped or [Server.Exit] is called; exec
// runs the command on the local machine; attach echoes its input; port-forward connects to the port on 127.0.0.1.
// [Options] imitate other runtimes, for example with v1alpha2 only, unimplemented calls, ignored filters or errors.
// [Profiles] are the options for existing runtimes.
package stubcri

import (
	"cmp"
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
)

// Options control the runtime's behaviour. The zero value is a well-behaved runtime.
type Options struct {
	// Info is added to the verbose status.
	Info map[string]string
	// Name and Version are the answer to Version; default: stubcri 1.0.0.
	Name, Version string
	// APIs are the CRI versions to serve; nil: v1 only.
	APIs []string
	// Unimplemented lists methods, such as "ListPodSandboxStats", that the runtime lacks.
	Unimplemented []string
	Errors        map[string]error
	// RuntimeAPIVersion is the API version in the answer to Version; "": from APIs.
	RuntimeAPIVersion string
	Change            func(answer proto.Message)
	// IgnoreImageFilter ignores the filters of image lists, IgnoreFilters those of all lists.
	IgnoreImageFilter bool
	IgnoreFilters     bool
	// LabelPods adds the kubelet's labels to sandboxes without them, but not to containers.
	LabelPods bool
	// LogStartErrors imitates CRI-O: a command that cannot be started exits with 255 and the OCI runtime's log line on
	// stderr, and ExecSync exits with -1 on a timeout.
	LogStartErrors bool
	// NoNetwork makes Status report NetworkReady=false.
	NoNetwork bool
	// MaxSend is the server's message limit; 0: gRPC's default.
	MaxSend int
	// Socket is the path to listen on; "": a new short path.
	Socket string
	// Private adds crishim's private service, as in its own shim.
	Private bool
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Server is a running stub runtime. Its methods are safe for concurrent use.
type Server struct {
	// Endpoint is the server's unix:// address.
	Endpoint string

	o    Options
	t    testing.TB
	grpc *grpc.Server
	stop chan struct{}

	mu         sync.Mutex // guards the fields below
	seq        int
	pods       map[string]*pod
	containers map[string]*container
	images     map[string]*runtimeapi.Image
	fail       map[string]error
	before     map[string]func(context.Context)
	afterStart map[string]func(id string) // by container name
	calls      []Call
	watchers   map[chan *runtimeapi.ContainerEventResponse]struct{}
	podCIDR    string
	streaming  *streaming
}

type Call struct {
	// Method is the short name, such as "ListContainers". API is the version of the service.
	Method, API string
	// Request is nil for streams.
	Request any
}

// Start runs a stub runtime until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Socket == "" {
		o.Socket = SocketPath(t)
	}
	s := &Server{
		Endpoint: "unix://" + o.Socket, o: o, t: t, stop: make(chan struct{}),
		pods: map[string]*pod{}, containers: map[string]*container{}, images: map[string]*runtimeapi.Image{},
		fail: map[string]error{}, before: map[string]func(context.Context){}, afterStart: map[string]func(string){},
		watchers: map[chan *runtimeapi.ContainerEventResponse]struct{}{},
	}
	l, err := net.Listen("unix", o.Socket)
	if err != nil {
		t.Fatal(err)
	}
	opts := []grpc.ServerOption{grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream), grpc.MaxRecvMsgSize(16 << 20)}
	if o.MaxSend > 0 {
		opts = append(opts, grpc.MaxSendMsgSize(o.MaxSend))
	}
	s.grpc = grpc.NewServer(opts...)
	s.register()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.grpc.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return s
}

// Stop stops the server at once, like a crashed runtime. It may be called twice.
func (s *Server) Stop() {
	s.mu.Lock()
	select {
	case <-s.stop:
		s.mu.Unlock()
		return
	default:
		close(s.stop)
	}
	st := s.streaming
	s.mu.Unlock()
	s.grpc.Stop()
	if st != nil {
		_ = st.http.Close()
	}
}

// SocketPath returns a path for a socket that is removed after the test.
func SocketPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(test.SocketDir(t), "s")
}

// register registers both services under the name of each version. v1 and v1alpha2 have the same wire format.
func (s *Server) register() {
	apis := s.o.APIs
	if apis == nil {
		apis = []string{"v1"}
	}
	for _, version := range apis {
		rd, id := runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc
		rd.ServiceName = "runtime." + version + ".RuntimeService"
		id.ServiceName = "runtime." + version + ".ImageService"
		s.grpc.RegisterService(&rd, &runtimeService{s: s})
		s.grpc.RegisterService(&id, &imageService{s: s})
	}
	if s.o.Private {
		api.RegisterCrishimServer(s.grpc, &privateService{s: s})
	}
}

// unary holds the lock during all calls except those of sessions, which lock by themselves.
func (s *Server) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := s.enter(ctx, req); err != nil {
		return nil, err
	}
	switch req.(type) {
	case *runtimeapi.ExecSyncRequest, *runtimeapi.ExecRequest, *runtimeapi.AttachRequest, *runtimeapi.PortForwardRequest:
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	res, err := handler(ctx, req)
	return s.changed(res), err
}

func (s *Server) changed(answer any) any {
	m, ok := answer.(proto.Message)
	if s.o.Change == nil || !ok || !m.ProtoReflect().IsValid() {
		return answer
	}
	m = proto.Clone(m) // the response shares objects with the server
	s.o.Change(m)
	return m
}

// changingStream applies Options.Change to sent messages.
type changingStream struct {
	grpc.ServerStream
	s *Server
}

func (c *changingStream) SendMsg(m any) error { return c.ServerStream.SendMsg(c.s.changed(m)) }

func (s *Server) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := s.enter(ss.Context(), nil); err != nil {
		return err
	}
	return handler(srv, &changingStream{ss, s})
}

// enter records a call and applies the test's faults.
func (s *Server) enter(ctx context.Context, req any) error {
	wire, _ := grpc.Method(ctx)
	method := wire[strings.LastIndexByte(wire, '/')+1:]
	api := strings.Split(wire, ".")[1]
	s.mu.Lock()
	s.calls = append(s.calls, Call{Method: method, API: api, Request: req})
	err, before := s.fail[method], s.before[method]
	s.mu.Unlock()
	if before != nil {
		before(ctx)
		if err := ctx.Err(); err != nil {
			// The deadline may pass here shortly before it passes at the client, which would still accept a response.
			<-s.stop
			return status.FromContextError(err).Err()
		}
	}
	if slices.Contains(s.o.Unimplemented, method) {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if err == nil {
		err = s.o.Errors[method]
	}
	return err
}

// Fail makes later calls of a method fail with err. nil ends this.
func (s *Server) Fail(method string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[method] = err
}

// Before runs f at the start of later calls of a method. To simulate a hanging runtime, f waits for ctx.Done.
func (s *Server) Before(method string, f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[method] = f
}

func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Methods returns the short names of the calls so far.
func (s *Server) Methods() []string {
	var out []string
	for _, c := range s.Calls() {
		out = append(out, c.Method)
	}
	return out
}

func (s *Server) now() time.Time {
	if s.o.Now != nil {
		return s.o.Now()
	}
	return time.Now()
}

func (r *runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	apis := r.s.o.APIs
	if apis == nil {
		apis = []string{"v1"}
	}
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: cmp.Or(r.s.o.Name, "stubcri"), RuntimeVersion: cmp.Or(r.s.o.Version, "1.0.0"),
		RuntimeApiVersion: cmp.Or(r.s.o.RuntimeAPIVersion, slices.Min(apis)),
	}, nil
}

func (r *runtimeService) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: !r.s.o.NoNetwork}
	if r.s.o.NoNetwork {
		network.Reason, network.Message = "NetworkPluginNotReady", "no CNI configuration"
	}
	resp := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, network,
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if req.GetVerbose() {
		resp.Info = map[string]string{"config": `{"podCIDR":"` + r.s.podCIDR + `"}`, "golang": `"go1.26"`}
		maps.Copy(resp.Info, r.s.o.Info)
	}
	return resp, nil
}

func (r *runtimeService) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD}}, nil
}

func (r *runtimeService) UpdateRuntimeConfig(_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	r.s.podCIDR = req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// PodCIDR returns the CIDR from the last UpdateRuntimeConfig.
func (s *Server) PodCIDR() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podCIDR
}

// privateService implements the pull of crishim's private service.
type privateService struct {
	api.UnimplementedCrishimServer
	s *Server
}

// PullImage pulls like CRI's PullImage and reports two layers, one of which exists already.
func (p *privateService) PullImage(r *api.PullImageRequest, out api.Crishim_PullImageServer) error {
	p.s.mu.Lock()
	res, err := (&imageService{s: p.s}).PullImage(out.Context(), &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: r.GetImage()},
		Auth:  &runtimeapi.AuthConfig{Username: r.GetUsername(), Password: r.GetPassword()},
	})
	p.s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, m := range []*api.PullImageResponse{
		{Layer: "latest", Status: "Pulling from app"},
		{Layer: "0123456789ab", Status: "Pulling fs layer"},
		{Layer: "cdef01234567", Status: "Already exists"},
		{Layer: "0123456789ab", Status: "Downloading", Current: 1_000, Total: 2_000},
		{Layer: "0123456789ab", Status: "Pull complete"},
		{Status: "Status: Downloaded newer image for app"},
		{ImageId: res.GetImageRef()},
	} {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return nil
}
