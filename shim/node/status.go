package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/network"
)

// Reasons that kubelets know from dockershim.
const (
	reasonEngine  = "DockerDaemonNotReady"
	reasonNetwork = "NetworkPluginNotReady"
)

// statusTime is how long a shim that stays waits for an engine before it is said
// not to answer. A busy one may take its time; one that hangs has been given some
// before, by the cache.
const statusTime = 6 * time.Second

// Status reports whether pods can be run. An engine that does not answer is no
// error here but a condition with the reason.
func (s *Service) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	asked, cancel := s.waitFor(ctx, statusTime)
	defer cancel()
	info, version, err := s.facts(asked)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("status: %w", ctx.Err())
	case err != nil && asked.Err() != nil:
		err = context.Cause(asked)
	}
	resp := &runtimeapi.StatusResponse{
		Status:          &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{runtimeReady(err), s.networkReady(ctx, err)}},
		RuntimeHandlers: handlers(info, version),
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, // on every engine
	}
	if r.GetVerbose() && err == nil {
		resp.Info, err = s.verboseStatus(ctx, info, version)
		return resp, err
	}
	return resp, nil
}

// facts asks the engine what Status needs and checks that the two fit.
func (s *Service) facts(ctx context.Context) (system.Info, string, error) {
	v, err := s.Engine.ServerVersion(ctx)
	if err != nil {
		return system.Info{}, "", err
	}
	if err := docker.CheckAPI(v.APIVersion); err != nil {
		return system.Info{}, "", err
	}
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return info, "", err
	}
	return info, v.APIVersion, s.checkDriver(info.CgroupDriver)
}

// checkDriver compares with what the kubelet was said to use. With two drivers
// on one node, pods and their limits end up in different trees.
func (s *Service) checkDriver(engine string) error {
	if s.CgroupDriver == "" || s.CgroupDriver == engine {
		return nil
	}
	return fmt.Errorf("misconfiguration: kubelet cgroup driver: %q is different from docker cgroup driver: %q: set \"exec-opts\": [\"native.cgroupdriver=%s\"] in the engine's daemon.json, or the kubelet's cgroupDriver to %s: %w",
		s.CgroupDriver, engine, s.CgroupDriver, engine, errdefs.ErrFailedPrecondition)
}

func runtimeReady(err error) *runtimeapi.RuntimeCondition {
	c := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: err == nil}
	if err != nil {
		c.Reason, c.Message = reasonEngine, docker.Text(err)
	}
	return c
}

// networkReady asks the plugin that a new pod would get. Without an engine there
// is no network either.
func (s *Service) networkReady(ctx context.Context, engine error) *runtimeapi.RuntimeCondition {
	c := runtimeReady(engine)
	c.Type = runtimeapi.NetworkReady
	if engine != nil || s.Networks.Default == nil {
		return c
	}
	if err := s.Networks.ForNew(ctx, false).Status(ctx); err != nil {
		c.Status, c.Reason, c.Message = false, reasonNetwork, docker.Text(err)
	}
	return c
}

func (s *Service) verboseStatus(ctx context.Context, info system.Info, api string) (map[string]string, error) {
	config := map[string]any{
		"sandboxImage":  s.PauseImage,
		"apiVersion":    api,
		"cgroupDriver":  info.CgroupDriver,
		"cgroupVersion": info.CgroupVersion,
		"storageDriver": info.Driver,
		"loggingDriver": info.LoggingDriver,
		"dockerRootDir": info.DockerRootDir,
		"liveRestore":   info.LiveRestoreEnabled,
	}
	if s.Networks.Default != nil {
		config["networkPlugin"] = s.Networks.name(ctx)
	}
	if config["networkPlugin"] == network.NameCNI { // containerd's names
		config["cni"] = map[string]any{"confDir": s.Networks.CNI.ConfDir(), "binDirs": s.Networks.CNI.BinDirs()}
	}
	b, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("verbose status: %w", err)
	}
	return map[string]string{"config": string(b)}, nil
}

// recursiveAPI is the Engine API from which on read-only mounts can be made
// recursive.
const recursiveAPI = "1.44"

// handlers lists the engine's OCI runtimes. The empty name is the default.
func handlers(info system.Info, api string) []*runtimeapi.RuntimeHandler {
	if len(info.Runtimes) == 0 {
		return nil
	}
	names := []string{""}
	for name := range info.Runtimes {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]*runtimeapi.RuntimeHandler, 0, len(names))
	for _, name := range names {
		engineName := name
		if name == "" {
			engineName = info.DefaultRuntime
		}
		out = append(out, &runtimeapi.RuntimeHandler{Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: !versions.LessThan(api, recursiveAPI) && recursiveReadOnly(info.Runtimes[engineName].Status),
		}})
	}
	return out
}

// recursiveReadOnly looks into what the engine passes on of the OCI runtime's
// own account of itself.
func recursiveReadOnly(status map[string]string) bool {
	var own struct {
		MountOptions []string `json:"mountOptions"`
	}
	text := status["org.opencontainers.runtime-spec.features"]
	return text != "" && json.Unmarshal([]byte(text), &own) == nil && slices.Contains(own.MountOptions, "rro")
}
