package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// all stands for every capability.
const all = "ALL"

// Capabilities are the engine's lists of capabilities to add and to drop.
// The engine spells them as it likes; both spellings are one name here, so
// that a list does not ask for the same capability twice. What the engine can
// give stands for all, where it has not all: it would fail over the others.
func Capabilities(c *runtimeapi.Capability, given []string) (add, drop []string, err error) {
	if len(c.GetAddAmbientCapabilities()) > 0 {
		return nil, nil, fmt.Errorf("the engine cannot set ambient capabilities: %w", errdefs.ErrNotImplemented)
	}
	if add, err = capabilityNames(c.GetAddCapabilities()); err != nil {
		return nil, nil, err
	}
	if drop, err = capabilityNames(c.GetDropCapabilities()); err != nil {
		return nil, nil, err
	}
	if AllCapabilities(add) && len(given) > 0 {
		named := slices.DeleteFunc(add, func(name string) bool { return name == all || slices.Contains(given, name) })
		rest := slices.DeleteFunc(slices.Clone(given), func(name string) bool { return slices.Contains(drop, name) })
		add = append(rest, named...)
	}
	return add, drop, nil
}

// AllCapabilities says whether a list asks for all, in either spelling.
func AllCapabilities(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return shortName(name) == all })
}

func shortName(name string) string { return strings.TrimPrefix(strings.ToUpper(name), "CAP_") }

func capabilityNames(names []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		short := shortName(name)
		if short == "" || strings.Trim(short, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
			return nil, fmt.Errorf("capability %q is no name of one: %w", name, errdefs.ErrInvalidArgument)
		}
		if !seen[short] {
			seen[short] = true
			out = append(out, short)
		}
	}
	return out, nil
}
