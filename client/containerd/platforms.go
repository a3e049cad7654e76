package containerd

import (
	"context"
	"slices"

	"github.com/containerd/containerd/api/services/introspection/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// alsoRuns lists the other architectures whose images containerd accepts.
var alsoRuns = map[string]string{"amd64": "386", "arm64": "arm"}

// Platforms returns the platforms whose images CRI lists, the runtime's own first. Nothing means that it does not say.
func (s *Store) Platforms(ctx context.Context) (platforms []v1.Platform) {
	answer, err := s.plugins.Plugins(in(ctx), &introspection.PluginsRequest{Filters: []string{"id==cri", "id==images"}})
	if err != nil {
		return nil
	}
	for _, plugin := range answer.GetPlugins() {
		for _, p := range plugin.GetPlatforms() {
			platforms = append(platforms, v1.Platform{OS: p.GetOS(), Architecture: p.GetArchitecture()})
			if other := alsoRuns[p.GetArchitecture()]; other != "" {
				platforms = append(platforms, v1.Platform{OS: p.GetOS(), Architecture: other})
			}
		}
	}
	return slices.CompactFunc(platforms, v1.Platform.Equals)
}
