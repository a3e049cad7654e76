package shim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	dockercontainer "github.com/docker/docker/api/types/container"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/container"
	"github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/node"
	"github.com/crishim/crishim/shim/sandbox"
	"github.com/crishim/crishim/shim/stats"
)

// Requests from users and from the public validation suite are minimal, and messages may contain empty parts that no
// client would send. Each has a defined answer, and nothing panics.

const sparseImage = "busybox:crishim"

func TestSparseRequests(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		engine := enginetest.NewMemory()
		engine.AddImage(sparseImage)
		log := slog.New(slog.DiscardHandler)
		networks := network.Plugins{Default: network.Bridge{}}
		containers := container.New(container.Options{Engine: engine})
		sandboxes := sandbox.New(sandbox.Options{Engine: engine, Containers: containers, Networks: networks})
		a := &criService{
			nodeService:      node.New(node.Options{Engine: engine, Networks: node.Networks{Plugins: networks}}),
			sandboxService:   sandboxes,
			containerService: containers,
			imageService:     image.New(image.Options{Engine: engine}),
			statsService:     stats.New(sparseStats{engine}, log),
		}
		sparse{serveService(t, log, a), false}.test(t)
	})
	t.Run("on the engine", func(t *testing.T) {
		enginetest.Require(t)
		e, err := StartEmbedded(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		conn, err := grpc.NewClient(e.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		sparse{conn, true}.test(t)
	})
}

type sparse struct {
	*grpc.ClientConn
	real bool // with a real engine; includes services that the in-memory engine lacks
}

func (s sparse) test(t *testing.T) {
	t.Run("nothing at all", s.nothing)
	t.Run("pods", s.pods)
	t.Run("containers", s.containers)
}

// nothing sends each request empty. Read-only requests succeed; requests that must name an object are invalid.
func (s sparse) nothing(t *testing.T) {
	want := map[string]codes.Code{
		"CheckpointContainer": codes.Unimplemented, "CheckpointPod": codes.Unimplemented, "RestorePod": codes.Unimplemented,
		"ReopenContainerLog": codes.Unimplemented, // in a shim for one command
	}
	for _, name := range strings.Fields(`Version Status RuntimeConfig UpdateRuntimeConfig ImageFsInfo ListPodSandbox ListContainers
		ListImages ListContainerStats ListPodSandboxStats ListMetricDescriptors ListPodSandboxMetrics StreamPodSandboxes
		StreamContainers StreamImages StreamContainerStats StreamPodSandboxStats StreamPodSandboxMetrics`) {
		want[name] = codes.OK
	}
	needsEngine := strings.Fields(`ExecSync Exec Attach PortForward ReopenContainerLog UpdateRuntimeConfig ListMetricDescriptors
		ListPodSandboxMetrics StreamPodSandboxMetrics`)
	services := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			name := string(m.Name())
			if name == "GetContainerEvents" || !s.real && slices.Contains(needsEngine, name) {
				continue // the event stream does not end by itself
			}
			expected, known := want[name]
			if !known {
				expected = codes.InvalidArgument
			}
			if err := s.call(t, m); status.Code(err) != expected {
				t.Errorf("%s: got %v, want %s", name, err, expected)
			}
		}
	}
}

// call sends an empty request and reads all responses.
func (s sparse) call(t *testing.T, m protoreflect.MethodDescriptor) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := s.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()))
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(dynamicpb.NewMessage(m.Input())), stream.CloseSend()); err != nil {
		return err
	}
	for err == nil {
		err = stream.RecvMsg(dynamicpb.NewMessage(m.Output()))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func sparsePod() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "sparse-" + strings.ToLower(rand.Text())}}
}

func (s sparse) run(t *testing.T, r *runtimeapi.RunPodSandboxRequest) (string, error) {
	t.Helper()
	c := runtimeapi.NewRuntimeServiceClient(s)
	resp, err := c.RunPodSandbox(t.Context(), r)
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if _, err := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: resp.GetPodSandboxId()}); err != nil {
			t.Error(err)
		}
	})
	return resp.GetPodSandboxId(), nil
}

// each sends invalid parts one by one. With an in-memory engine it also sends valid parts one by one; a real engine is
// slow, so it gets all valid parts together.
func each[M proto.Message](t *testing.T, s sparse, m M, refused map[string]codes.Code, send func(M) error) {
	t.Helper()
	all := proto.CloneOf(m)
	for path, r := range emptied(m) {
		want, no := refused[path]
		switch {
		case !no && s.real:
			proto.Merge(all, r)
			continue
		case !no:
			want = codes.OK
		}
		if err := send(r); status.Code(err) != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	if err := send(all); err != nil {
		t.Errorf("with all that is taken: %v", err)
	}
}

func (s sparse) pods(t *testing.T) {
	const users, windows = "config.linux.security_context.namespace_options.userns_options", "config.windows"
	refused := map[string]codes.Code{
		"config.port_mappings":                       codes.InvalidArgument, // port 0
		"config.linux.security_context.run_as_group": codes.InvalidArgument, // without a user
		users: codes.Unimplemented, users + ".uids": codes.Unimplemented, users + ".gids": codes.Unimplemented,
		windows: codes.InvalidArgument, windows + ".security_context": codes.InvalidArgument,
		windows + ".security_context.namespace_options": codes.InvalidArgument,
	}
	each(t, s, &runtimeapi.RunPodSandboxRequest{Config: sparsePod()}, refused, func(r *runtimeapi.RunPodSandboxRequest) error {
		r.Config.Metadata = sparsePod().Metadata
		id, err := s.run(t, r)
		if err != nil {
			return err
		}
		got, err := runtimeapi.NewRuntimeServiceClient(s).PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
		if err == nil && (got.GetStatus().GetMetadata().GetName() != r.Config.Metadata.Name || got.GetStatus().GetNetwork().GetIp() == "") {
			t.Errorf("%v became %v", r, got)
		}
		return err
	})
	// In the node's network, the pod's ports and users are the node's.
	host := runtimeapi.NamespaceMode_NODE
	config := sparsePod()
	config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80}}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: host, UsernsOptions: &runtimeapi.UserNamespace{Mode: host}},
	}}
	if _, err := s.run(t, &runtimeapi.RunPodSandboxRequest{Config: config}); err != nil {
		t.Errorf("on the node's network: %v", err)
	}
}

func (s sparse) containers(t *testing.T) {
	pod, err := s.run(t, &runtimeapi.RunPodSandboxRequest{Config: sparsePod()})
	if err != nil {
		t.Fatal(err)
	}
	const users, windows = "config.linux.security_context.namespace_options.userns_options", "config.windows"
	refused := map[string]codes.Code{
		"config.linux.security_context.run_as_group": codes.InvalidArgument,
		users: codes.Unimplemented, users + ".uids": codes.Unimplemented, users + ".gids": codes.Unimplemented,
		windows: codes.InvalidArgument, windows + ".resources": codes.InvalidArgument,
		windows + ".resources.affinity_cpus": codes.InvalidArgument, windows + ".security_context": codes.InvalidArgument,
		"config.envs": codes.InvalidArgument, "config.devices": codes.InvalidArgument, "config.CDI_devices": codes.InvalidArgument,
		"config.mounts": codes.InvalidArgument, "config.mounts.image": codes.InvalidArgument,
		"config.mounts.uidMappings": codes.InvalidArgument, "config.mounts.gidMappings": codes.InvalidArgument,
		"config.linux.resources.hugepage_limits": codes.InvalidArgument,
	}
	c := runtimeapi.NewRuntimeServiceClient(s)
	attempt := uint32(0)
	m := &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: sparseImage},
	}}
	each(t, s, m, refused, func(r *runtimeapi.CreateContainerRequest) error {
		attempt++
		r.Config.Metadata.Attempt = attempt
		made, err := c.CreateContainer(t.Context(), r)
		if err != nil {
			return err
		}
		if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
			return err
		}
		got, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: made.GetContainerId(), Verbose: true})
		if err == nil && (got.GetStatus().GetMetadata().GetAttempt() != attempt || got.GetStatus().GetStartedAt() == 0 || got.GetStatus().GetImageId() == "") {
			t.Errorf("%v became %v", r, got)
		}
		return err
	})
}

// emptied returns copies of a request, each with one additional empty part: an empty message or a list with one.
func emptied[M proto.Message](m M) map[string]M {
	out := map[string]M{}
	var walk func(path string, have proto.Message, at func(proto.Message) protoreflect.Message)
	walk = func(path string, have proto.Message, at func(proto.Message) protoreflect.Message) {
		fields := at(have).Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if f.Message() == nil || f.IsMap() {
				continue
			}
			with := proto.Clone(have)
			part := func(m proto.Message) protoreflect.Message {
				if f.IsList() {
					return at(m).Get(f).List().Get(0).Message()
				}
				return at(m).Mutable(f).Message()
			}
			where := path + string(f.Name())
			switch {
			case at(with).Has(f):
			case f.IsList():
				at(with).Mutable(f).List().AppendMutable()
				out[where] = proto.Clone(with).(M)
			default:
				part(with)
				out[where] = proto.Clone(with).(M)
			}
			walk(where+".", with, part)
		}
	}
	walk("", m, func(m proto.Message) protoreflect.Message { return m.ProtoReflect() })
	return out
}

type sparseStats struct{ *enginetest.Memory }

func (sparseStats) ContainerStatsOneShot(context.Context, string) (dockercontainer.StatsResponseReader, error) {
	return dockercontainer.StatsResponseReader{}, errdefs.ErrNotImplemented
}
