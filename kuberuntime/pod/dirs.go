package pod

import (
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Dirs are the host folders of the pod runtime.
type Dirs struct {
	Root string // volumes, termination messages, hosts files: Root/pods/UID
	Logs string // the kubelet's /var/log/pods
	// LegacyLogs is the kubelet's /var/log/containers with a link for each log, or empty
	// where no links are wanted.
	LegacyLogs string
}

// Pods is the folder that has one folder for each pod.
func (d Dirs) Pods() string { return filepath.Join(d.Root, "pods") }

// IsUID reports whether a uid can be the name of a pod's folder. The runtime has pods of other
// tools too, and their uids are any text, such as a way out of the folder of all pods.
func IsUID(uid string) bool {
	return uid != "" && uid != "." && uid != ".." && !strings.ContainsAny(uid, "/\x00")
}

// Pod is a pod's own folder.
func (d Dirs) Pod(uid string) string { return filepath.Join(d.Pods(), uid) }

// Container is where a container's termination messages are.
func (d Dirs) Container(uid, name string) string {
	return filepath.Join(d.Pod(uid), "containers", name)
}

// Hosts is the pod's hosts file.
func (d Dirs) Hosts(uid string) string { return filepath.Join(d.Pod(uid), "etc-hosts") }

// Volume is the folder of a volume that the pod runtime makes.
func (d Dirs) Volume(uid, kind, name string) string {
	return filepath.Join(d.Pod(uid), "volumes", "kubernetes.io~"+kind, name)
}

// SubPath is where a sub path of a volume is mounted for one volumeMount of a container.
func (d Dirs) SubPath(uid, volume, container string, index int) string {
	return filepath.Join(d.Pod(uid), "volume-subpaths", volume, container, strconv.Itoa(index))
}

// Seccomp is where local seccomp profiles are looked up.
func (d Dirs) Seccomp() string { return filepath.Join(d.Root, "seccomp") }

// PodLogs is the log folder of a pod.
func (d Dirs) PodLogs(p *v1.Pod) string {
	return filepath.Join(d.Logs, LogFolder(p.Namespace, p.Name, string(p.UID)))
}

// LogFolder is the name of a pod's log folder.
func LogFolder(namespace, name, uid string) string { return namespace + "_" + name + "_" + uid }
