package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/criconfig"
)

// makePodCgroup creates the cgroup of a pod with pod-level resources, like the kubelet's podContainerManager. This
// cgroup is the parent of the containers' cgroups. makePodCgroup refuses a runtime that does not report the cgroupfs
// driver, such as a runtime without RuntimeConfig: with the systemd driver, the cgroup would have to be a slice of
// systemd.
func (s *syncing) makePodCgroup(ctx context.Context) error {
	resp, err := s.m.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("ask for the runtime's cgroup driver: %w", err)
	}
	if err != nil || resp.GetLinux().GetCgroupDriver() != runtimeapi.CgroupDriver_CGROUPFS {
		return noPodCgroup(s.m.name + " does not say that its cgroup driver is cgroupfs")
	}
	if err := writePodCgroup(s.m.o.Host, s.pod); err != nil {
		return noPodCgroup(fmt.Sprintf("the pod's cgroup cannot be made: %v", err))
	}
	return nil
}

func noPodCgroup(why string) error { return field.Forbidden(field.NewPath("spec", "resources"), why) }

// checkPodCgroup removes a sandbox that is not in the pod's cgroup, for example of a runtime in another cgroup namespace:
// the pod would run without its limits.
func (s *syncing) checkPodCgroup(ctx context.Context) error {
	for _, dir := range podCgroupDirs(s.m.o.Host, s.pod) {
		entries, err := os.ReadDir(dir)
		if slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for the pod's sandbox in its cgroup: %w", err)
		}
	}
	ctx = context.WithoutCancel(ctx)
	_, stopped := s.m.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.sandbox})
	_, removed := s.m.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.sandbox})
	return errors.Join(noPodCgroup(s.m.name+" does not put the pod into its cgroup"), stopped, removed)
}

// podCgroupDirs returns the directories of a pod's cgroup. With cgroup v1, runtimes create it in every hierarchy.
func podCgroupDirs(host criconfig.Host, p *v1.Pod) []string {
	roots := []string{host.CgroupRoot}
	if !host.CgroupV2 {
		roots, _ = filepath.Glob(filepath.Join(host.CgroupRoot, "*"))
	}
	var dirs []string
	for _, root := range roots {
		dirs = append(dirs, filepath.Join(root, criconfig.CgroupParent(p)))
	}
	return dirs
}

// writePodCgroup creates or updates the cgroup. With cgroup v2, it enables the controllers in the cgroups above.
func writePodCgroup(host criconfig.Host, p *v1.Pod) error {
	for _, file := range criconfig.PodCgroup(p, host) {
		at := filepath.Join(host.CgroupRoot, file.Controller)
		for name := range strings.SplitSeq(strings.Trim(criconfig.CgroupParent(p), "/"), "/") {
			if host.CgroupV2 {
				if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+cpu +memory"), 0o644); err != nil {
					return err
				}
			}
			at = filepath.Join(at, name)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(at, file.Name), []byte(file.Value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removePodCgroup removes the cgroup of a pod whose containers were removed.
func removePodCgroup(host criconfig.Host, p *v1.Pod) error {
	if p.Spec.Resources == nil {
		return nil
	}
	var errs []error
	for _, dir := range podCgroupDirs(host, p) {
		if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
