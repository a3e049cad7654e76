package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/docker"
)

// Reasons of dockershim, which kubelets recognize.
const (
	reasonEngine  = "DockerDaemonNotReady"
	reasonNetwork = "NetworkPluginNotReady"
)

// Status succeeds without the engine. A condition then has the reason.
func (s *Service) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	bounded, cancel := s.withTimeout(ctx, statusTimeout)
	defer cancel()
	info, version, err := s.check(bounded)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("status: %w", ctx.Err())
	case err != nil && bounded.Err() != nil:
		err = context.Cause(bounded)
	}
	runtime := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: err == nil}
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: err == nil}
	resp := &runtimeapi.StatusResponse{
		Status:          &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{runtime, network}},
		RuntimeHandlers: handlers(info, version),
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, // supported with every engine
	}
	if err != nil { // the network depends on the engine
		runtime.Reason, runtime.Message = reasonEngine, docker.Text(err)
		network.Reason, network.Message = runtime.Reason, runtime.Message
		return resp, nil
	}
	plugin := s.Networks.ForNew(ctx, false)
	if err := plugin.Status(ctx); err != nil {
		network.Status, network.Reason, network.Message = false, reasonNetwork, docker.Text(err)
	}
	if !r.GetVerbose() {
		return resp, nil
	}
	config := map[string]any{
		"sandboxImage":  s.PauseImage,
		"apiVersion":    version,
		"cgroupDriver":  info.CgroupDriver,
		"cgroupVersion": info.CgroupVersion,
		"storageDriver": info.Driver,
		"loggingDriver": info.LoggingDriver,
		"engineID":      info.ID, // identifies the engine, however it is reached
		"dockerRootDir": info.DockerRootDir,
		"liveRestore":   info.LiveRestoreEnabled,
		"networkPlugin": plugin.Name(),
	}
	switch {
	case s.Networks.Kubenet:
		config["networkPlugin"] = "kubenet"
	case plugin == s.Networks.CNI: // the same keys as in containerd's verbose status
		config["cni"] = map[string]any{"confDir": s.Networks.CNI.ConfDir(), "binDirs": s.Networks.CNI.BinDirs()}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("verbose status: %w", err)
	}
	resp.Info = map[string]string{"config": string(text)}
	return resp, nil
}

// check pings the engine, which rejects an incompatible API version, and rejects a cgroup driver other than the kubelet's, as
// dockershim's cgroupDriver did. With different drivers, pods and their limits would be in different cgroup trees.
func (s *Service) check(ctx context.Context) (info system.Info, apiVersion string, err error) {
	ping, err := s.Engine.Ping(ctx) // unlike ServerVersion, a ping starts no other program
	if err != nil {
		return info, "", err
	}
	if info, err = s.Engine.Info(ctx); err != nil {
		return info, "", err
	}
	if s.CgroupDriver != "" && s.CgroupDriver != info.CgroupDriver {
		err = fmt.Errorf("misconfiguration: kubelet cgroup driver: %q is different from docker cgroup driver: %q: set \"exec-opts\": [\"native.cgroupdriver=%s\"] in the engine's daemon.json, or the kubelet's cgroupDriver to %s: %w",
			s.CgroupDriver, info.CgroupDriver, s.CgroupDriver, info.CgroupDriver, errdefs.ErrFailedPrecondition)
	}
	return info, ping.APIVersion, err
}

const recursiveAPI = "1.44"

func handlers(info system.Info, api string) []*runtimeapi.RuntimeHandler {
	if len(info.Runtimes) == 0 {
		return nil
	}
	selinux := convert.HasSecurity(info.SecurityOptions, "selinux") // the engine cannot relabel recursive read-only mounts
	var list []*runtimeapi.RuntimeHandler
	for _, name := range append([]string{""}, slices.Sorted(maps.Keys(info.Runtimes))...) {
		runtime := info.Runtimes[cmp.Or(name, info.DefaultRuntime)]
		var features struct { // features that the OCI runtime reports to the engine
			MountOptions []string `json:"mountOptions"`
		}
		known := json.Unmarshal([]byte(runtime.Status["org.opencontainers.runtime-spec.features"]), &features) == nil
		list = append(list, &runtimeapi.RuntimeHandler{Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: known && !selinux && !versions.LessThan(api, recursiveAPI) && slices.Contains(features.MountOptions, "rro"),
		}})
	}
	return list
}
