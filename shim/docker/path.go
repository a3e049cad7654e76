package docker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// plain refuses a name with dots for a part, which is the name of nothing. The
// engine's API has names in the paths of its URLs, where ".." would ask for
// something else.
func plain(kind, name string) error {
	if slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return part == "." || part == ".." }) {
		return fmt.Errorf("no such %s: %s: %w", kind, name, errdefs.ErrNotFound)
	}
	return nil
}
