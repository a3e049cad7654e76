package container

import (
	"encoding/json"
	"fmt"

	"github.com/docker/docker/api/types/container"
)

// verbose is what ContainerStatus adds when asked for everything. The key
// "info" has the shape of containerd's, so that tools written for it find the
// pid and the process; "sandboxID" and "pid" stand alone as in cri-dockerd.
func verbose(m member) (map[string]string, error) {
	info := map[string]any{
		"sandboxID":   m.SandboxID,
		"pid":         m.c.State.Pid,
		"removing":    m.c.State.Status == container.StateRemoving,
		"snapshotter": m.c.Driver,
		"runtimeType": runtimeOf(m),
		"logPath":     m.c.LogPath,
		"engineName":  m.c.Name,
		"runtimeSpec": runtimeSpec(m),
	}
	out := map[string]string{}
	for key, value := range map[string]any{"info": info, "sandboxID": m.SandboxID, "pid": m.c.State.Pid} {
		b, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", m.c.ID, err)
		}
		out[key] = string(b)
	}
	return out, nil
}

func runtimeOf(m member) string {
	if m.c.HostConfig == nil {
		return ""
	}
	return m.c.HostConfig.Runtime
}

// runtimeSpec has the form of an OCI runtime specification, as far as the
// engine tells what went into it.
func runtimeSpec(m member) map[string]any {
	spec := map[string]any{
		"hostname": m.c.Config.Hostname,
		"process": map[string]any{
			"terminal":        m.c.Config.Tty,
			"user":            map[string]any{"username": m.c.Config.User},
			"args":            append([]string{m.c.Path}, m.c.Args...),
			"env":             m.c.Config.Env,
			"cwd":             m.c.Config.WorkingDir,
			"apparmorProfile": m.c.AppArmorProfile,
			"selinuxLabel":    m.c.ProcessLabel,
		},
		"mounts":      specMounts(m.c.Mounts),
		"annotations": m.Annotations,
	}
	if h := m.c.HostConfig; h != nil {
		spec["root"] = map[string]any{"readonly": h.ReadonlyRootfs}
		spec["linux"] = map[string]any{
			"cgroupsPath":   h.CgroupParent,
			"maskedPaths":   h.MaskedPaths,
			"readonlyPaths": h.ReadonlyPaths,
			"resources":     h.Resources,
		}
	}
	return spec
}

func specMounts(points []container.MountPoint) []map[string]any {
	var out []map[string]any
	for _, p := range points {
		options := []string{"rbind", "rw"}
		if !p.RW {
			options[1] = "ro"
		}
		if p.Propagation != "" {
			options = append(options, string(p.Propagation))
		}
		out = append(out, map[string]any{
			"destination": p.Destination, "source": p.Source, "type": string(p.Type), "options": options,
		})
	}
	return out
}
