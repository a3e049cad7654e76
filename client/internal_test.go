package client

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPiecesHaveTheLayoutOfTheWhole checks the assumption of readPieces.
func TestPiecesHaveTheLayoutOfTheWhole(t *testing.T) {
	t.Parallel()
	methods := map[string]protoreflect.MethodDescriptor{}
	services := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			m := services.Get(i).Methods().Get(j)
			methods["/"+string(services.Get(i).FullName())+"/"+string(m.Name())] = m
		}
	}
	for unary, stream := range streamedLists {
		u, s := methods[unary], methods[stream]
		if u == nil || s == nil {
			t.Errorf("%s or %s is no method", unary, stream)
			continue
		}
		if !s.IsStreamingServer() {
			t.Errorf("%s is no stream", stream)
		}
		sameFields(t, u.Input(), s.Input())
		sameFields(t, u.Output(), s.Output())
	}
}

func sameFields(t *testing.T, a, b protoreflect.MessageDescriptor) {
	t.Helper()
	if a.Fields().Len() != b.Fields().Len() {
		t.Errorf("%s and %s differ in their number of fields", a.FullName(), b.FullName())
		return
	}
	for i := range a.Fields().Len() {
		x, y := a.Fields().Get(i), b.Fields().ByNumber(a.Fields().Get(i).Number())
		if y == nil || x.Kind() != y.Kind() || x.Cardinality() != y.Cardinality() || x.Message() != y.Message() {
			t.Errorf("%s and %s differ in field %d", a.FullName(), b.FullName(), x.Number())
		}
	}
}

func TestCandidatesHideThePassword(t *testing.T) {
	t.Parallel()
	o := &Options{Engines: func(string) []Engine {
		return []Engine{{Host: "tcp://me@corp:secret@127.0.0.1:1", Err: errors.New("no engine")}}
	}}
	list := o.probeEngines(t.Context(), Endpoint{Docker: true})
	if len(list) != 1 || list[0].Endpoint != "tcp://me@corp:***@127.0.0.1:1" {
		t.Errorf("got %+v", list)
	}
}

func TestOperation(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{
		"/runtime.v1.RuntimeService/ListContainers":     "list containers",
		"/runtime.v1.RuntimeService/RunPodSandbox":      "run the pod",
		"/runtime.v1alpha2.ImageService/PullImage":      "pull image",
		"/runtime.v1.RuntimeService/ListPodSandbox":     "list pods",
		"/runtime.v1.RuntimeService/RemoveContainer":    "remove container",
		"/runtime.v1.RuntimeService/GetContainerEvents": "watch events",
	} {
		if got := operation(method); got != want {
			t.Errorf("%s: got %q, want %q", method, got, want)
		}
	}
}

// The endpoint contains the address under which the engine was found, so that a remote engine does not look local.
func TestEngineEndpoint(t *testing.T) {
	for host, want := range map[string]string{
		"unix:///var/run/docker.sock": "docker:///var/run/docker.sock",
		"tcp://node:2375":             "docker+tcp://node:2375",
		"ssh://joe@node:2222":         "docker+ssh://joe@node:2222",
		"":                            "docker://",
	} {
		if got := engineEndpoint(Engine{Host: host}); got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
	}
}

func TestEngineOfEndpoint(t *testing.T) {
	for in, want := range map[string]string{
		"docker://": "", "docker:///d.sock": "unix:///d.sock", "docker+tcp://h:1": "tcp://h:1", "docker+ssh://j@h:22": "ssh://j@h:22", "/x": "",
	} {
		e, err := ParseEndpoint(in)
		if err != nil || e.engineHost() != want {
			t.Errorf("%s: got %q, %v; want %q", in, e.engineHost(), err, want)
		}
	}
}

func TestRemoteEngineReason(t *testing.T) {
	for text, want := range map[string]string{
		"Cannot connect to the Docker daemon at http://docker.example.com. Is the docker daemon running?":                 "no Docker engine answers there",
		"command [ssh -l joe node docker system dial-stdio] has exited with exit status 255, stderr=Permission denied.\n": "Permission denied.",
	} {
		if got := remoteEngineReason(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLazyConn checks that concurrent callers share one dial and that a cancelled caller does not wait for it.
func TestLazyConn(t *testing.T) {
	t.Parallel()
	dialling, answer := make(chan struct{}), make(chan error)
	opened := &criConn{endpoint: "unix:///x.sock"}
	lazy := newLazyConn(nil, func(context.Context) (*criConn, []found, error) {
		dialling <- struct{}{}
		if err := <-answer; err != nil {
			return nil, nil, err
		}
		return opened, nil, nil
	})
	get := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			conn, err := lazy.get(ctx)
			if err == nil && conn != opened {
				err = errors.New("another connection")
			}
			done <- err
		}()
		return done
	}
	first := get(t.Context())
	<-dialling
	ctx, cancel := context.WithCancel(t.Context())
	second := get(ctx)
	cancel()
	if err := <-second; status.Code(err) != codes.Canceled {
		t.Errorf("got %v, want %v", err, codes.Canceled)
	}
	third := get(t.Context())
	refused := errors.New("refused")
	answer <- refused
	if err := <-first; !errors.Is(err, refused) {
		t.Errorf("got %v, want %v", err, refused)
	}
	<-dialling // the next waiting caller dials
	answer <- nil
	if err := <-third; err != nil {
		t.Error(err)
	}
	if conn := lazy.opened(); conn != opened {
		t.Errorf("got %v, want the connection", conn)
	}
}
