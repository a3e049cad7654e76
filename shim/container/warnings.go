package container

import (
	"strings"

	"github.com/docker/docker/api/types/container"
)

// heed reads the engine's warnings. An engine on a host that lacks a part of
// the cgroups drops the limits it cannot set and only warns of it; here that is
// a refusal. Shares are only a weight, which such a host does without.
func (s *Service) heed(warnings []string, asked container.Resources, about ...any) error {
	for _, w := range warnings {
		switch {
		case strings.Contains(w, "Shares discarded"):
		case strings.Contains(w, "discarded"), strings.Contains(w, "without swap") && asked.MemorySwap != asked.Memory:
			return unable("the engine cannot set a limit that is asked for: %s", strings.TrimSuffix(w, "."))
		}
		s.log.Info("the engine warns about a container", append(about, "warning", w)...)
	}
	return nil
}
