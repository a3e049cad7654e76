package checkup

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/output"
)

// cgroupDriver compares the runtime's cgroup driver with the kubelet's. It warns if the runtime uses cgroupfs on a host
// that runs systemd.
func (c *checker) cgroupDriver(ctx context.Context) output.Finding {
	const check = "cgroup driver"
	r, err := c.conn.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if status.Code(err) == codes.Unimplemented || err == nil && r.GetLinux() == nil {
		return skipped(check, "the runtime does not say")
	}
	if err != nil {
		return failed(check, err.Error(), "")
	}
	driver := strings.ToLower(r.GetLinux().GetCgroupDriver().String())
	if !c.local {
		return ok(check, driver)
	}
	if kubelet := c.kubeletDriver(); kubelet != "" && kubelet != driver {
		return failed(check, fmt.Sprintf("the runtime uses %s, the kubelet is configured for %s", driver, kubelet),
			"make both the same; systemd where systemd runs the machine")
	}
	if _, err := os.Stat(c.host.path("/run/systemd/system")); err == nil && driver == "cgroupfs" {
		return warn(check, "cgroupfs, but systemd runs this machine and manages cgroups too",
			"use the systemd driver (Docker: native.cgroupdriver=systemd; containerd: SystemdCgroup = true)")
	}
	return ok(check, driver)
}

// kubeletDriver returns the driver in the kubelet's config file; "" when there is no file or
// it leaves the driver to the runtime.
func (c *checker) kubeletDriver() string {
	data, err := os.ReadFile(c.host.path("/var/lib/kubelet/config.yaml"))
	if err != nil {
		return ""
	}
	var config struct {
		CgroupDriver string `json:"cgroupDriver"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return ""
	}
	return config.CgroupDriver
}

// imageFilesystem measures the filesystem that images are on.
func (c *checker) imageFilesystem(ctx context.Context) output.Finding {
	const check = "image filesystem"
	r, err := c.conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return failed(check, err.Error(), "")
	}
	fs := r.GetImageFilesystems()
	if len(fs) == 0 || fs[0].GetFsId().GetMountpoint() == "" {
		return skipped(check, "the runtime does not say where it is")
	}
	path := fs[0].GetFsId().GetMountpoint()
	if !c.local {
		return skipped(check, path+" cannot be seen from here")
	}
	disk, err := c.host.measure(c.host.path(path))
	if err != nil {
		return skipped(check, err.Error())
	}
	disk.Path = path
	found, low := disk.Finding()
	const hint = "`crishim rmi --prune` removes images that nothing uses"
	switch {
	case !low:
		return ok(check, fmt.Sprintf("%s has %.0f%% of its space free", path, 100*disk.Space))
	case found.Severity == diagnose.Error:
		return failed(check, found.Text, hint)
	}
	return warn(check, found.Text, hint)
}

// streaming requests the URL of a port-forward and connects to its host, the runtime's streaming server. exec, attach and
// port-forward depend on this server. The request has no side effects.
func (c *checker) streaming(ctx context.Context) output.Finding {
	const check = "streaming"
	address, err := c.streamURL(ctx)
	if err != nil {
		return failed(check, err.Error(), "")
	}
	if address == "" {
		return skipped(check, "no ready pod to try it with")
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return warn(check, fmt.Sprintf("the runtime gives %q for a stream, which is no full address", address), "")
	}
	host := u.Host
	if u.Port() == "" {
		port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
		host = net.JoinHostPort(u.Hostname(), port)
	}
	if err := c.host.dial(ctx, host); err != nil {
		return failed(check, fmt.Sprintf("%s cannot be reached: %v", host, err),
			"exec, attach and port-forward need it; check the runtime's streaming address and the firewall")
	}
	return ok(check, host+" can be reached")
}

// streamURL returns the address of a port-forward to a ready pod, or "" without a ready pod.
func (c *checker) streamURL(ctx context.Context) (string, error) {
	pods, err := c.conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.GetItems() {
		if pod.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue // some runtimes ignore filters
		}
		r, err := c.conn.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: pod.GetId(), Port: []int32{1}})
		if err == nil {
			return r.GetUrl(), nil
		}
		now, gone := c.conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.GetId()})
		if gone == nil && now.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return "", err
		}
	}
	return "", nil
}
