package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

func cpus() int { return goruntime.NumCPU() }

// runtime is a CRI runtime that this program started, and a client of it.
type runtime struct {
	runtimeapi.RuntimeServiceClient
	endpoint string
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the process has ended
	conn     *grpc.ClientConn
	// ready is how long it took until Status answered.
	ready time.Duration
}

// startServe starts crishim serve on an engine.
func (b *bench) startServe(ctx context.Context, name, engine string) (*runtime, error) {
	endpoint := "unix://" + filepath.Join(b.dir, name+".sock")
	return b.startRuntime(ctx, name, endpoint, b.crishim, "serve", "--listen", endpoint, "--docker-endpoint", engine)
}

// startCRIDockerd starts the peer.
func (b *bench) startCRIDockerd(ctx context.Context) (*runtime, error) {
	endpoint := "unix://" + filepath.Join(b.dir, "cri-dockerd.sock")
	return b.startRuntime(ctx, "cri-dockerd", endpoint, b.criDockerd, "--container-runtime-endpoint", endpoint, "--docker-endpoint", b.host,
		"--network-plugin=", "--cri-dockerd-root-directory", filepath.Join(b.dir, "cri-dockerd"), "--streaming-bind-addr=127.0.0.1:0")
}

// startRuntime starts a CRI runtime and waits until Status answers.
func (b *bench) startRuntime(ctx context.Context, name, endpoint, program string, args ...string) (r *runtime, err error) {
	r = &runtime{endpoint: endpoint, cmd: exec.CommandContext(ctx, program, args...), ended: make(chan struct{})}
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(os.Interrupt) }
	logPath := filepath.Join(b.dir, name+".log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r.cmd.Stderr, r.cmd.Stdout = log, log
	begin := time.Now()
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = r.cmd.Wait() // a signal is how it ends
		close(r.ended)
	}()
	defer func() {
		if err != nil {
			said, _ := os.ReadFile(logPath)
			err = errors.Join(fmt.Errorf("%s: %w: %s", name, err, said), r.stop())
		}
	}()
	if err := r.socketMade(begin.Add(stepTimeout)); err != nil {
		return nil, err
	}
	r.conn, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	r.RuntimeServiceClient = runtimeapi.NewRuntimeServiceClient(r.conn)
	wait, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if _, err := r.Status(wait, &runtimeapi.StatusRequest{}, grpc.WaitForReady(true)); err != nil {
		return nil, err
	}
	r.ready = time.Since(begin)
	return r, nil
}

// socketMade waits for the socket. gRPC's own waiting would add its back-off,
// a second, to how long the start takes.
func (r *runtime) socketMade(deadline time.Time) error {
	for {
		if _, err := os.Stat(strings.TrimPrefix(r.endpoint, "unix://")); err == nil {
			return nil
		}
		select {
		case <-r.ended:
			return errors.New("it ended")
		case <-time.After(time.Millisecond):
			if time.Now().After(deadline) {
				return errors.New("it made no socket")
			}
		}
	}
}

func (r *runtime) stop() error {
	_ = r.cmd.Process.Signal(os.Interrupt) // it may have ended already
	<-r.ended
	if r.conn == nil {
		return nil
	}
	return r.conn.Close()
}

// podConfig returns a pod with the labels that a kubelet gives it, as its containers have them, too.
func podConfig(name string) *runtimeapi.PodSandboxConfig {
	meta := &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "crishim-bench", Uid: fmt.Sprintf("%s-%d", name, time.Now().UnixNano())}
	labels := map[string]string{kube.LabelPodName: meta.Name, kube.LabelPodNamespace: meta.Namespace, kube.LabelPodUID: meta.Uid}
	return &runtimeapi.PodSandboxConfig{Metadata: meta, Labels: labels, Linux: &runtimeapi.LinuxPodSandboxConfig{}}
}

// hostPod is a pod in the host's network: the engine's bridge has no room for
// hundreds.
func hostPod(name string) *runtimeapi.PodSandboxConfig {
	config := podConfig(name)
	config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}
	return config
}

func containerConfig(image, name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image}, Command: command,
		Linux: &runtimeapi.LinuxContainerConfig{},
	}
}

func (r *runtime) runPod(ctx context.Context, config *runtimeapi.PodSandboxConfig) (string, error) {
	res, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	return res.GetPodSandboxId(), err
}

func (r *runtime) podIP(ctx context.Context, pod string) (string, error) {
	res, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod})
	return res.GetStatus().GetNetwork().GetIp(), err
}

func (r *runtime) createContainer(ctx context.Context, pod string, sandbox *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) (string, error) {
	config.Labels = maps.Clone(sandbox.GetLabels())
	config.Labels[kube.LabelContainerName] = config.GetMetadata().GetName()
	res, err := r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, SandboxConfig: sandbox, Config: config})
	return res.GetContainerId(), err
}

func (r *runtime) startContainer(ctx context.Context, pod string, sandbox *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) (string, error) {
	id, err := r.createContainer(ctx, pod, sandbox, config)
	if err != nil {
		return "", err
	}
	_, err = r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return id, err
}

func (r *runtime) removePod(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, stopErr := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	_, err := r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return errors.Join(stopErr, err)
}

// removePods removes pods by several clients.
func (r *runtime) removePods(ctx context.Context, ids []string) error {
	return each(len(ids), 8, func(i int) error {
		if ids[i] == "" {
			return nil
		}
		return r.removePod(context.WithoutCancel(ctx), ids[i])
	})
}
