package convert

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Capabilities are the engine's lists of capabilities to add and to drop.
// The engine spells them as it likes; both spellings are one name here, so
// that a list does not ask for the same capability twice.
func Capabilities(c *runtimeapi.Capability) (add, drop []string, err error) {
	if len(c.GetAddAmbientCapabilities()) > 0 {
		return nil, nil, fmt.Errorf("the engine cannot set ambient capabilities: %w", errdefs.ErrNotImplemented)
	}
	if add, err = capabilityNames(c.GetAddCapabilities()); err != nil {
		return nil, nil, err
	}
	if drop, err = capabilityNames(c.GetDropCapabilities()); err != nil {
		return nil, nil, err
	}
	return add, drop, nil
}

func capabilityNames(names []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		short := strings.TrimPrefix(strings.ToUpper(name), "CAP_")
		if short == "" || strings.Trim(short, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
			return nil, fmt.Errorf("capability %q: %w", name, errdefs.ErrInvalidArgument)
		}
		if !seen[short] {
			seen[short] = true
			out = append(out, short)
		}
	}
	return out, nil
}
