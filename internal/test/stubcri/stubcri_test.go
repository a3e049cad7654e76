package stubcri_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

func dial(t *testing.T, s *stubcri.Server) (runtimeapi.RuntimeServiceClient, runtimeapi.ImageServiceClient) {
	t.Helper()
	cc, err := grpc.NewClient(s.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return runtimeapi.NewRuntimeServiceClient(cc), runtimeapi.NewImageServiceClient(cc)
}

func TestLifeOfAPod(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	runtime, image := dial(t, s)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}
	p, err := runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod})
	must(err)
	_, err = image.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "busybox"}})
	must(err)
	c, err := runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.GetPodSandboxId(),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "docker.io/library/busybox:latest"},
		},
	})
	must(err)
	_, err = runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()})
	must(err)
	x, err := runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.GetContainerId(), Cmd: []string{"sh", "-c", "echo out; exit 7"}})
	must(err)
	if x.GetExitCode() != 7 || string(x.GetStdout()) != "out\n" {
		t.Errorf("got %v, want out and 7", x)
	}
	s.Exit(c.GetContainerId(), 3)
	st, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetContainerId()[:10]})
	must(err)
	if st.GetStatus().GetExitCode() != 3 || st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("got %v, want it exited with 3", st)
	}
	_, err = runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.GetPodSandboxId()})
	must(err)
	if pods, containers := s.Left(); pods+containers != 0 {
		t.Errorf("%d pods and %d containers are left", pods, containers)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{APIs: []string{"v1alpha2"}, Unimplemented: []string{"Status"}})
	runtime, _ := dial(t, s)
	if _, err := runtime.Version(t.Context(), &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("v1 on a server without it: got %v, want Unimplemented", err)
	}
	s = stubcri.Start(t, stubcri.Options{Unimplemented: []string{"Status"}})
	runtime, _ = dial(t, s)
	if _, err := runtime.Status(t.Context(), &runtimeapi.StatusRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
	s.Fail("ListContainers", status.Error(codes.Internal, "broken"))
	if _, err := runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("got %v, want Internal", err)
	}
	if got := s.Methods(); len(got) != 2 || got[0] != "Status" {
		t.Errorf("got calls %v", got)
	}
}
