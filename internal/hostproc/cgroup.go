package hostproc

import (
	"slices"
	"strings"
	"unicode"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// Group is what the control groups of a process say about it. Only root makes groups outside those that it
// delegates: names further out than a container's own are not the container's.
type Group struct {
	Path string
	// IDs are those of the containers that the process is in, the outermost first: a nested one names its groups
	// as it likes.
	IDs     []string
	PodUID  string // of the group of a pod, outside any container
	Unit    string // of systemd, outside any container
	User    string // the id of the user to whose own systemd the rest is delegated
	Monitor bool   // the process watches the container and is not in it
}

// ID returns the id of the outermost container, "" for none and for a process that only watches it.
func (g Group) ID() string {
	if g.Monitor || len(g.IDs) == 0 {
		return ""
	}
	return g.IDs[0]
}

// ContainerOf returns the id of the outermost container in the path of a control group, "" for none.
func ContainerOf(path string) string { return parsePath(path).ID() }

// ParseGroup reads a /proc/PID/cgroup, of cgroup v1, v2 or both. Of the hierarchies the one counts that says
// most; all have the same where a runtime has put the process into them.
func ParseGroup(text string) Group {
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

// rank orders what is known of a process by how much it is.
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
	// podName is the group of a pod: pod1234-5678 of the kubelet's cgroupfs driver, and
	// kubepods-burstable-pod1234_5678.slice of its systemd driver.
	podName = lazyregexp.New(`^(?:pod|(?:.*-)?kubepods(?:-burstable|-besteffort)?-pod)([0-9a-zA-Z_.-]+?)(?:\.slice)?$`)
	// hexID is a container's id, as every runtime makes them.
	hexID = lazyregexp.New(`^[0-9a-f]{64}$`)
	// userUnit is the systemd of one user, who makes groups below it.
	userUnit = lazyregexp.New(`^user@(\d+)\.service$`)
)

// parsePath reads one path: /docker/ID, /kubepods/burstable/podUID/ID, docker-ID.scope,
// kubepods-besteffort-podUID.slice/cri-containerd-ID.scope, kubepods-podUID.slice:cri-containerd:ID,
// crio-conmon-ID.scope, libpod-ID.scope/container, and others of these kinds.
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
		case len(g.IDs) > 0: // it is the container's own
		case kube && m != nil && g.PodUID == "":
			g.PodUID = m[1]
			if strings.HasSuffix(name, ".slice") { // where - is a separator
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

// containerID returns the id in the name of a group, and what is before it.
func containerID(name string) (id, prefix string) {
	name = strings.TrimSuffix(name, ".scope")
	start := strings.LastIndexFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) + 1
	if !hexID.MatchString(name[start:]) {
		return "", ""
	}
	return name[start:], name[:start]
}

// isUnit reports whether a group is that of a unit with processes. A slice counts where nothing else does.
func isUnit(name string) bool {
	return slices.ContainsFunc([]string{".service", ".scope", ".socket", ".mount", ".swap"}, func(kind string) bool {
		return len(name) > len(kind) && strings.HasSuffix(name, kind)
	})
}

// upTo returns the path of the group of a container, which has its own groups below.
func (g Group) upTo(id string) string {
	if i := strings.Index(g.Path, id); i >= 0 {
		return g.Path[:i+len(id)]
	}
	return ""
}

// SameContainer reports whether two processes are in the same group of a container.
func (g Group) SameContainer(other Group, id string) bool {
	return g.upTo(id) != "" && g.upTo(id) == other.upTo(id)
}
