package container

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/state"
)

// shmSize is what dockershim gave everybody, whatever the engine's default is.
const shmSize = 64 << 20

// plan is everything the engine is told to create a container.
type plan struct {
	name   string
	config *container.Config
	host   *container.HostConfig
}

// makePlan turns a request and the facts into the engine's configuration. It
// is pure: everything it depends on is in its arguments.
func makePlan(r *runtimeapi.CreateContainerRequest, f facts) (plan, error) {
	c := r.GetConfig()
	p := plan{
		name:   state.ContainerName(f.pod.Metadata, c.GetMetadata()),
		config: processConfig(c, f),
		host: &container.HostConfig{
			ShmSize:   shmSize,
			Runtime:   f.sandbox.HostConfig.Runtime,
			LogConfig: container.LogConfig{},
		},
	}
	for _, topic := range []func(*plan, *runtimeapi.CreateContainerRequest, facts) error{
		planEnv, planLabels, planStop, planMounts, planDevices, planResources, planNamespaces, planSecurity, planUser,
	} {
		if err := topic(&p, r, f); err != nil {
			return p, err
		}
	}
	return p, nil
}

func processConfig(c *runtimeapi.ContainerConfig, f facts) *container.Config {
	return &container.Config{
		Image:      f.image.ID,
		Entrypoint: c.GetCommand(),
		Cmd:        c.GetArgs(),
		WorkingDir: c.GetWorkingDir(),
		Tty:        c.GetTty(),
		OpenStdin:  c.GetStdin(),
		StdinOnce:  c.GetStdinOnce(),
		// An image's health check is the engine's business, a pod's probes are
		// the kubelet's; without this both run.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
}

func planEnv(p *plan, r *runtimeapi.CreateContainerRequest, _ facts) (err error) {
	p.config.Env, err = convert.Env(r.GetConfig().GetEnvs())
	return err
}

func planStop(p *plan, r *runtimeapi.CreateContainerRequest, _ facts) (err error) {
	p.config.StopSignal, err = convert.EngineSignal(r.GetConfig().GetStopSignal())
	return err
}

func planLabels(p *plan, r *runtimeapi.CreateContainerRequest, f facts) error {
	c := r.GetConfig()
	p.config.Labels = state.EncodeContainer(state.Container{
		Metadata:    c.GetMetadata(),
		Pod:         f.pod.Metadata,
		SandboxID:   f.sandbox.ID,
		LogPath:     logPath(r),
		LogDir:      r.GetSandboxConfig().GetLogDirectory(),
		Image:       userImage(c.GetImage()),
		Labels:      c.GetLabels(),
		Annotations: c.GetAnnotations(),
		Created:     f.now,
	})
	return nil
}

// userImage is the name a person gave the image: kubelets send the image's id,
// and the name beside it.
func userImage(spec *runtimeapi.ImageSpec) string {
	if name := spec.GetUserSpecifiedImage(); name != "" {
		return name
	}
	return spec.GetImage()
}

// logPath is where the log is wanted, "" for nowhere.
func logPath(r *runtimeapi.CreateContainerRequest) string {
	dir, file := r.GetSandboxConfig().GetLogDirectory(), r.GetConfig().GetLogPath()
	if dir == "" || file == "" {
		return ""
	}
	return path.Join(dir, file)
}

func planDevices(p *plan, r *runtimeapi.CreateContainerRequest, f facts) (err error) {
	if p.host.Devices, err = convert.Devices(r.GetConfig().GetDevices()); err != nil {
		return err
	}
	if p.host.DeviceRequests, err = convert.CDIDevices(r.GetConfig().GetCDIDevices()); err != nil {
		return err
	}
	if len(p.host.DeviceRequests) > 0 && !f.speaks("1.44") {
		return unable("CDI devices need Docker Engine 25 (API 1.44), this one speaks API %s", f.api)
	}
	return nil
}

func planResources(p *plan, r *runtimeapi.CreateContainerRequest, f facts) (err error) {
	wanted := r.GetConfig().GetLinux().GetResources()
	if p.host.Resources, err = mergeResources(p.host.Resources, wanted); err != nil {
		return err
	}
	p.host.OomScoreAdj = f.oomScore
	parent := r.GetSandboxConfig().GetLinux().GetCgroupParent()
	p.host.CgroupParent, err = convert.CgroupParent(parent, f.info.CgroupDriver)
	if err != nil {
		return err
	}
	if parent == "" {
		p.host.CgroupParent = f.sandbox.HostConfig.CgroupParent
	}
	return planLimits(p, wanted, f)
}

// mergeResources keeps the devices, which are resources for the engine.
func mergeResources(r container.Resources, wanted *runtimeapi.LinuxContainerResources) (container.Resources, error) {
	out, err := convert.Resources(wanted)
	out.Devices, out.DeviceRequests = r.Devices, r.DeviceRequests
	return out, err
}

// planLimits notes in a label the limits that the engine has no field for.
// They are written into the container's cgroup once it has one.
func planLimits(p *plan, wanted *runtimeapi.LinuxContainerResources, f facts) error {
	files, err := convert.CgroupFiles(wanted, f.info.CgroupVersion == "2")
	if err != nil || len(files) == 0 {
		return err
	}
	b, err := json.Marshal(limits{Files: files, Hugepages: wanted.GetHugepageLimits(), Unified: wanted.GetUnified()})
	if err != nil {
		return fmt.Errorf("resource limits as a label: %w", err)
	}
	p.config.Labels[state.LabelOwnLimits] = string(b)
	return nil
}
