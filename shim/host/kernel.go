// Package host deals with what the engine's host is, has and forbids: a container's
// cgroup and namespace there, the engine's own process, and what its kernel allows.
package host

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// appArmorProfiles is where the kernel lists the profiles that are loaded.
const appArmorProfiles = "/sys/kernel/security/apparmor/profiles"

// AppArmorLoaded reports whether this host's kernel has a profile of that name. A
// list that cannot be read, or a name of several profiles or of a namespace,
// decides nothing: the start of the container will.
func AppArmorLoaded(profile string) bool { return appArmorLoadedIn(appArmorProfiles, profile) }

func appArmorLoadedIn(path, profile string) bool {
	b, err := os.ReadFile(path)
	if err != nil || strings.ContainsAny(profile, ":&") {
		return true
	}
	for line := range strings.Lines(string(b)) {
		// "NAME (MODE)", and a name may hold a space and a bracket.
		line = strings.TrimSuffix(line, "\n")
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == profile && strings.HasSuffix(line, ")") {
			return true
		}
	}
	return false
}

// OOMScore remembers whether the engine's host lets containers have a negative
// oom_score_adj. A host whose root lacks CAP_SYS_RESOURCE does not, and then no
// container that asks for one can start. All services of a shim share one, so the
// refusal is met once and logged once.
type OOMScore struct {
	Log *slog.Logger // nil: the refusal is not logged
	// Known, where it is set, is asked once whether the host is known to refuse.
	// It saves the container that would be made only to find out.
	Known   func() bool
	ask     sync.Once
	refused atomic.Bool
}

// Allowed is the value to ask the engine for.
func (o *OOMScore) Allowed(wanted int) int {
	if wanted >= 0 {
		return wanted
	}
	o.ask.Do(func() {
		if o.Known != nil && o.Known() {
			o.refuse(wanted)
		}
	})
	if o.refused.Load() {
		return 0
	}
	return wanted
}

// Refused reports whether err, the answer to a start with the value asked, may
// mean that the host forbids it. The caller starts again with Allowed's value
// and reports that start's error if it fails as well.
func (o *OOMScore) Refused(asked int, err error) bool {
	if asked >= 0 || err == nil {
		return false
	}
	// runc has two texts for it: old versions lose the child that writes the score before it
	// can tell why.
	if text := err.Error(); !strings.Contains(text, "oom_score_adj") && !strings.Contains(text, "can't get final child's PID from pipe") {
		return false
	}
	o.refuse(asked)
	return true
}

func (o *OOMScore) refuse(asked int) {
	if !o.refused.Swap(true) && o.Log != nil {
		o.Log.Warn("the host forbids negative oom scores, containers run with 0 instead", "asked", asked)
	}
}
