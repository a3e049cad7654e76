package client_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/stubcri"
)

// offering is a runtime that names a socket for the streams of its execs.
type offering struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (offering) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "offering"}, nil
}

func (offering) Exec(ctx context.Context, _ *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return &runtimeapi.ExecResponse{Url: "http://127.0.0.1:1/exec/token"}, grpc.SetHeader(ctx, metadata.Pairs(api.HeaderHandover, "@of-that-machine"))
}

// The socket that a runtime on another machine names is not the one that has the
// name here.
func TestHandoverIsForThisMachine(t *testing.T) {
	t.Parallel()
	for network, want := range map[string]string{"unix": "@of-that-machine", "tcp": ""} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = stubcri.SocketPath(t)
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		runtimeapi.RegisterRuntimeServiceServer(s, offering{})
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Stop()
			if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				t.Error(err)
			}
		})
		c := connect(t, client.Options{RuntimeEndpoint: network + "://" + l.Addr().String(), ConnectTimeout: patient})
		got, err := c.ExecSession(t.Context(), &runtimeapi.ExecRequest{ContainerId: "c", Cmd: []string{"true"}}, client.Process{})
		if err != nil || got.Handover != want || got.URL == "" {
			t.Errorf("%s: got %+v, %v, want the socket %q", network, got, err, want)
		}
	}
}
