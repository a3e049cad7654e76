package commands

import (
	"context"
	"encoding/json"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// podConfigOf rebuilds the configuration of a pod that exists. Runtimes need
// it again for each container, and some keep it for whoever asks.
func podConfigOf(ctx context.Context, conn *client.Conn, id string) (*runtimeapi.PodSandboxConfig, error) {
	res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	if kept := keptConfig(res.GetInfo()); kept != nil {
		return kept, nil
	}
	status := res.GetStatus()
	pod := &runtimeapi.PodSandboxConfig{
		Metadata:    status.GetMetadata(),
		Labels:      status.GetLabels(),
		Annotations: status.GetAnnotations(),
	}
	if options := status.GetLinux().GetNamespaces().GetOptions(); options != nil {
		pod.Linux = &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options},
		}
	}
	if own := ownLogDirectory(status.GetMetadata()); isDir(own) {
		pod.LogDirectory = own
	}
	return pod, nil
}

// keptConfig is the configuration in a runtime's own details, where containerd
// and CRI-O keep it.
func keptConfig(info map[string]string) *runtimeapi.PodSandboxConfig {
	var details struct {
		Config *runtimeapi.PodSandboxConfig `json:"config"`
	}
	if json.Unmarshal([]byte(info["info"]), &details) != nil || details.Config.GetMetadata() == nil {
		return nil
	}
	return details.Config
}

// adoptPod gives a configuration from a file what it leaves out and the pod was
// made with: the uid may have been made up then. The runtime is asked only for a
// log directory: not the embedded shim, which reads the engine's logs, nor when
// crishim has made one itself.
func adoptPod(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandboxConfig, made *runtimeapi.PodSandbox) error {
	if pod.Metadata.Uid == "" {
		pod.Metadata.Uid = made.GetMetadata().GetUid()
	}
	if pod.Metadata.Namespace == "" {
		pod.Metadata.Namespace = made.GetMetadata().GetNamespace()
	}
	if pod.LogDirectory != "" || conn.Embedded {
		return nil
	}
	if own := ownLogDirectory(made.GetMetadata()); isDir(own) {
		pod.LogDirectory = own
		return nil
	}
	known, err := podConfigOf(ctx, conn, made.GetId())
	pod.LogDirectory = known.GetLogDirectory()
	return err
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
