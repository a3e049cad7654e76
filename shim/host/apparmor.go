package host

import (
	"os"
	"slices"
	"strings"
)

// appArmorProfiles is where the kernel lists the profiles that are loaded.
const appArmorProfiles = "/sys/kernel/security/apparmor/profiles"

// AppArmorLoaded says whether this host's kernel has a profile of that name. A
// list that cannot be read, or a name of several profiles or of a namespace,
// tells nothing: the start of the container will.
func AppArmorLoaded(profile string) bool { return appArmorLoadedIn(appArmorProfiles, profile) }

func appArmorLoadedIn(path, profile string) bool {
	b, err := os.ReadFile(path)
	if err != nil || strings.ContainsAny(profile, ":&") {
		return true
	}
	return slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool {
		name, mode, ok := cutLast(line, " (")
		return ok && name == profile && strings.HasSuffix(mode, ")")
	})
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
