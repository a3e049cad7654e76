package client

// Known is a socket that is probed when no endpoint is given.
type Known struct {
	// Name is who usually listens there.
	Name string
	// Path is the socket.
	Path string
	// Containerd marks sockets of a containerd that Docker may have brought.
	Containerd bool
}

// KnownSockets are the sockets that are probed, in order of precedence.
func KnownSockets() []Known {
	return []Known{
		{Name: "crishim serve", Path: "/run/crishim/crishim.sock"},
		{Name: "containerd", Path: "/run/containerd/containerd.sock", Containerd: true},
		{Name: "CRI-O", Path: "/run/crio/crio.sock"},
		{Name: "cri-dockerd", Path: "/var/run/cri-dockerd.sock"},
		{Name: "dockershim", Path: "/var/run/dockershim.sock"},
		{Name: "k3s or rke2", Path: "/run/k3s/containerd/containerd.sock"},
		{Name: "k0s", Path: "/run/k0s/containerd.sock"},
		{Name: "microk8s", Path: "/var/snap/microk8s/common/run/containerd.sock"},
	}
}

func (o *Options) known() []Known {
	if o.Known != nil {
		return o.Known
	}
	return KnownSockets()
}
