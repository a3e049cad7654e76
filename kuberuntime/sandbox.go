package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/kuberuntime/criconfig"
)

// prepare makes volumes and, if it is wanted, the sandbox. The record comes first: by it
// garbage collection finds what is left, secrets too, where that is as far as it gets.
func (s *syncing) prepare(ctx context.Context) error {
	if err := s.m.writeRecord(s.pod, s.status); err != nil {
		return err
	}
	made, err := s.m.volumes.Setup(s.pod, s.set)
	if err != nil {
		s.m.warn(s.pod, "", EventVolumes, "%v", err)
		return err
	}
	s.volumes = made
	s.config = s.m.generator.Sandbox(s.pod, s.actions.Attempt)
	if s.actions.CreateSandbox {
		if err := s.createSandbox(ctx); err != nil {
			s.m.warn(s.pod, "", EventSandboxFailed, "%v", err)
			return err
		}
	}
	if err := s.writeHosts(); err != nil {
		return err
	}
	return s.pullVolumes(ctx)
}

func (s *syncing) createSandbox(ctx context.Context) error {
	if err := os.MkdirAll(s.config.GetLogDirectory(), 0o755); err != nil {
		return fmt.Errorf("make the log folder: %w", err)
	}
	handler := ""
	if name := s.pod.Spec.RuntimeClassName; name != nil {
		class := s.set.RuntimeClasses[*name]
		if class == nil {
			return fmt.Errorf("RuntimeClass %s not found", *name)
		}
		handler = class.Handler
	}
	made, err := s.m.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: s.config, RuntimeHandler: handler})
	if err != nil {
		return err
	}
	resp, err := s.m.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.GetPodSandboxId()})
	if err != nil {
		return err
	}
	s.sandbox = made.GetPodSandboxId()
	s.ips = addresses([]*runtimeapi.PodSandboxStatus{resp.GetStatus()}, s.m.o.Host.IPs)
	s.m.event(s.pod, "", EventSandboxCreated, "created sandbox %s%s", shortID(s.sandbox), withAddress(s.ips))
	return nil
}

func withAddress(ips []string) string {
	if len(ips) == 0 {
		return ""
	}
	return " with address " + ips[0]
}

func shortID(id string) string { return id[:min(len(id), 13)] }

func (s *syncing) writeHosts() error {
	if len(s.ips) == 0 && !s.pod.Spec.HostNetwork {
		return nil
	}
	return writeHostsFile(s.m.o.Dirs.Hosts(string(s.pod.UID)), criconfig.HostsFile(s.pod, s.m.o.Host, s.ips))
}

// writeHostsFile writes in place: containers have the file itself mounted, and may have made
// of it what they like. It is not read, and cut after it was written, so that those who
// read an unchanged file meanwhile see no change.
func writeHostsFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := bounded.OpenFile(path, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("write the pod's hosts file: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the pod's hosts file: %w", err)
	}
	return nil
}

// pullVolumes has the images of image volumes there before a container needs them.
func (s *syncing) pullVolumes(ctx context.Context) error {
	s.images = map[string]*runtimeapi.Image{}
	for i := range s.pod.Spec.Volumes {
		v := s.pod.Spec.Volumes[i].Image
		if v == nil {
			continue
		}
		image, err := s.m.ensureImage(ctx, s.pod, "", v.Reference, v.PullPolicy, s.set, s.config)
		if err != nil {
			return fmt.Errorf("volume %s: %w", s.pod.Spec.Volumes[i].Name, err)
		}
		s.images[v.Reference] = image
	}
	return nil
}
