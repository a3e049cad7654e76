package hostproc

import (
	"slices"
	"strings"
	"unicode"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// Group is the information in a process's cgroup path. Only root can create cgroups outside delegated ones, so the
// components above a container's own cgroup can be trusted.
type Group struct {
	Path string
	// IDs are the ids of the enclosing containers, outermost first. Only the first id is trusted, because a container
	// can create cgroups of any name below its own.
	IDs     []string
	PodUID  string // from the pod's cgroup above the containers
	Unit    string // systemd unit above the containers
	User    string // uid of the user whose systemd manages the rest of the path
	Monitor bool   // the process monitors the container and is not in it
}

// ID returns the id of the outermost container, or "" for no container and for a monitor.
func (g Group) ID() string {
	if g.Monitor || len(g.IDs) == 0 {
		return ""
	}
	return g.IDs[0]
}

// ContainerOf returns the id of the outermost container in a cgroup path, or "" for no container and for a monitor.
func ContainerOf(path string) string { return parsePath(path).ID() }

// parseGroup parses /proc/PID/cgroup of cgroup v1, v2 or both. It returns the most informative hierarchy; all are the
// same if a runtime has set them.
func parseGroup(text string) Group {
	var best Group
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if g := parsePath(parts[2]); best.Path == "" || g.rank() > best.rank() {
			best = g
		}
	}
	return best
}

// rank orders groups by the amount of information.
func (g Group) rank() int {
	switch {
	case len(g.IDs) > 0:
		return 4
	case g.PodUID != "":
		return 3
	case g.Unit != "":
		return 2
	case g.Path != "/":
		return 1
	}
	return 0
}

var (
	// podName matches the cgroup of a pod: pod1234-5678 of the kubelet's cgroupfs driver, and
	// kubepods-burstable-pod1234_5678.slice of its systemd driver.
	podName = lazyregexp.New(`^(?:pod|(?:.*-)?kubepods(?:-burstable|-besteffort)?-pod)([0-9a-zA-Z_.-]+?)(?:\.slice)?$`)
	// hexID matches a container id. All runtimes use this form.
	hexID = lazyregexp.New(`^[0-9a-f]{64}$`)
	// userUnit matches the systemd instance of a user, which creates cgroups below it.
	userUnit = lazyregexp.New(`^user@(\d+)\.service$`)
)

// parsePath parses a cgroup path: /docker/ID, /kubepods/burstable/podUID/ID, docker-ID.scope,
// kubepods-besteffort-podUID.slice/cri-containerd-ID.scope, kubepods-podUID.slice:cri-containerd:ID,
// crio-conmon-ID.scope, libpod-ID.scope/container, and similar forms.
func parsePath(path string) Group {
	g := Group{Path: strings.TrimSuffix(path, " (deleted)")}
	kube := false
	for name := range strings.FieldsFuncSeq(g.Path, func(r rune) bool { return r == '/' || r == ':' }) {
		kube = kube || strings.Contains(name, "kubepods")
		id, prefix := containerID(name)
		switch m := podName.FindStringSubmatch(name); {
		case id != "":
			if len(g.IDs) == 0 {
				g.Monitor = strings.Contains(prefix, "conmon")
			}
			g.IDs = append(g.IDs, id)
		case len(g.IDs) > 0: // the container created this cgroup
		case kube && m != nil && g.PodUID == "":
			g.PodUID = m[1]
			if strings.HasSuffix(name, ".slice") { // systemd uses - as separator in slice names, so the kubelet writes _
				g.PodUID = strings.ReplaceAll(g.PodUID, "_", "-")
			}
		case userUnit.MatchString(name) && g.User == "":
			g.User, g.Unit = userUnit.FindStringSubmatch(name)[1], name
		case isUnit(name):
			g.Unit = name
		}
	}
	return g
}

// containerID splits the name of a cgroup into a container id and its prefix.
func containerID(name string) (id, prefix string) {
	name = strings.TrimSuffix(name, ".scope")
	start := strings.LastIndexFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) + 1
	if !hexID.MatchString(name[start:]) {
		return "", ""
	}
	return name[start:], name[:start]
}

// isUnit reports whether a cgroup has the name of a systemd unit that contains processes, such as a service or a scope.
// It returns false for a slice, which only groups other units.
func isUnit(name string) bool {
	return slices.ContainsFunc([]string{".service", ".scope", ".socket", ".mount", ".swap"}, func(kind string) bool {
		return len(name) > len(kind) && strings.HasSuffix(name, kind)
	})
}

// upTo returns the cgroup path up to the container's own cgroup, without the cgroups that the container created below
// it.
func (g Group) upTo(id string) string {
	if i := strings.Index(g.Path, id); i >= 0 {
		return g.Path[:i+len(id)]
	}
	return ""
}

// SameContainer reports whether two processes are in the cgroup of the container with this id, or in cgroups below it.
// The paths must be equal down to the id, because a user can create a cgroup of the same name elsewhere.
func (g Group) SameContainer(other Group, id string) bool {
	return g.upTo(id) != "" && g.upTo(id) == other.upTo(id)
}
