package kuberuntime

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// Requests are the requests that create a pod where there is none, without making them or
// anything else. What only a running pod has, such as its address, is left out, and values
// from Secrets are masked: requests are shown.
func Requests(p *v1.Pod, set *manifest.Set, host criconfig.Host, dirs pod.Dirs) (*runtimeapi.RunPodSandboxRequest, []*runtimeapi.CreateContainerRequest, error) {
	set = maskSecrets(set)
	g := &criconfig.Generator{Host: host, Dirs: dirs}
	run := &runtimeapi.RunPodSandboxRequest{Config: g.Sandbox(p, 0)}
	if name := p.Spec.RuntimeClassName; name != nil {
		run.RuntimeHandler = set.RuntimeClasses[*name].Handler
	}
	made := (&volume.Maker{Dirs: dirs, Host: host}).Plan(p)
	var creates []*runtimeapi.CreateContainerRequest
	for _, c := range manifest.Containers(p) {
		mounts := volume.PlanMounts(c, made)
		mounts = append(mounts,
			&runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: dirs.Hosts(string(p.UID))},
			&runtimeapi.Mount{ContainerPath: c.TerminationMessagePath, HostPath: filepath.Join(dirs.Container(string(p.UID), c.Name), "00000000")})
		in := criconfig.ContainerInput{Pod: p, Container: c, Set: set, ImageRef: c.Image, Mounts: mounts}
		if sc := p.Spec.SecurityContext; c.SecurityContext == nil || c.SecurityContext.RunAsUser == nil && sc.RunAsUser == nil {
			user := int64(1) // which user the image has is known once it is pulled
			in.ImageUser.UID = &user
		}
		config, err := g.Container(in)
		if err != nil {
			return nil, nil, err
		}
		creates = append(creates, &runtimeapi.CreateContainerRequest{Config: config})
	}
	return run, creates, nil
}

// maskSecrets returns a set with other values in its Secrets, so that no variable, command or
// path that is made from one can have it.
func maskSecrets(set *manifest.Set) *manifest.Set {
	masked := *set
	masked.Secrets = map[string]*v1.Secret{}
	for name, secret := range set.Secrets {
		other := *secret
		other.Data = map[string][]byte{}
		for key := range secret.Data {
			other.Data[key] = []byte("********")
		}
		masked.Secrets[name] = &other
	}
	return &masked
}
