package commands

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
)

// The labels that kubelets and the shims give containers.
const (
	labelPodName      = kube.LabelPodName
	labelPodNamespace = kube.LabelPodNamespace
	labelPodUID       = kube.LabelPodUID
)

// pattern is an optional regular expression, unanchored as in crictl.
type pattern struct{ *regexp.Regexp }

func (p pattern) matches(s string) bool { return p.Regexp == nil || p.MatchString(s) }

func readPattern(c *cli.Context, name string) (pattern, error) {
	text := c.String(name)
	if text == "" {
		return pattern{}, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return pattern{}, usagef("--%s: %v", name, err)
	}
	return pattern{re}, nil
}

// readLabels reads --label k=v[,k=v]; a value may contain '='.
func readLabels(c *cli.Context, name string) (map[string]string, error) {
	labels := map[string]string{}
	for _, text := range c.StringSlice(name) {
		pairs, err := labelPairs(name, text)
		if err != nil {
			return nil, err
		}
		maps.Copy(labels, pairs)
	}
	return labels, nil
}

func labelPairs(name, text string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, one := range splitPairs(text) {
		key, value, found := strings.Cut(one, "=")
		if !found || key == "" {
			return nil, usagef("--%s %s: want key=value", name, quote(one))
		}
		pairs[key] = value
	}
	return pairs, nil
}

// readLabelFilter reads --label where it chooses: KEY alone is any value of it.
// What stands in --selector must hold as well.
func readLabelFilter(c *cli.Context) (labels map[string]string, selector client.Selector, err error) {
	if selector, err = readSelector(c); err != nil {
		return nil, nil, err
	}
	labels = map[string]string{}
	for _, text := range c.StringSlice("label") {
		pairs, err := labelPairs("label", text)
		if err != nil && text != "" && !strings.ContainsAny(text, "=!,()") {
			var exists client.Selector
			if exists, err = client.ParseSelector(text); err == nil {
				selector = append(selector, exists...)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(labels, pairs)
	}
	return labels, selector, nil
}

// splitPairs cuts a=b,c=d at the commas that a new pair follows.
func splitPairs(text string) []string {
	var pairs []string
	for _, part := range strings.Split(text, ",") {
		if !strings.Contains(part, "=") && len(pairs) > 0 {
			pairs[len(pairs)-1] += "," + part
			continue
		}
		pairs = append(pairs, part)
	}
	return pairs
}

// hasLabels says whether have holds all of want; runtimes that ignore the
// filter make it necessary to look again.
func hasLabels(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// newest sorts by creation, youngest first, and keeps n of them; n below 0
// keeps all.
func newest[T interface{ GetCreatedAt() int64 }](items []T, n int) []T {
	slices.SortStableFunc(items, func(a, b T) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	if n >= 0 && n < len(items) {
		items = items[:n]
	}
	return items
}

// recency reads --latest and --last: how many of the newest to keep, -1 for
// all.
func recency(c *cli.Context) (int, error) {
	switch {
	case c.IsSet("last") && c.Int("last") < 0:
		return 0, usagef("--last %d: want a number that is not negative", c.Int("last"))
	case c.IsSet("last") && c.Int("last") > 0:
		return c.Int("last"), nil
	case c.Bool("latest"):
		return 1, nil
	}
	return -1, nil
}

func recencyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "latest", Aliases: []string{"l"}, Usage: "only the newest, whatever its state"},
		&cli.IntFlag{Name: "last", Aliases: []string{"n"}, Usage: "only the `N` newest, whatever their state"},
	}
}

// oneOf reads a flag that takes one of a few words, in any case.
func oneOf[T any](c *cli.Context, name string, words map[string]T) (value T, given bool, err error) {
	text := strings.ToLower(c.String(name))
	if text == "" {
		return value, false, nil
	}
	value, ok := words[text]
	if !ok {
		known := make([]string, 0, len(words))
		for word := range words {
			known = append(known, word)
		}
		slices.Sort(known)
		return value, false, usagef("--%s %s: want %s", name, quote(text), strings.Join(known, ", "))
	}
	return value, true, nil
}

func containerStates() map[string]runtimeapi.ContainerState {
	return map[string]runtimeapi.ContainerState{
		"created": runtimeapi.ContainerState_CONTAINER_CREATED,
		"running": runtimeapi.ContainerState_CONTAINER_RUNNING,
		"exited":  runtimeapi.ContainerState_CONTAINER_EXITED,
		"unknown": runtimeapi.ContainerState_CONTAINER_UNKNOWN,
	}
}

func podStates() map[string]runtimeapi.PodSandboxState {
	return map[string]runtimeapi.PodSandboxState{
		"ready":    runtimeapi.PodSandboxState_SANDBOX_READY,
		"notready": runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
	}
}

// bothLabels is what the runtime can check of --label and --selector. A key in
// both stands as --label has it; the rest is checked here.
func bothLabels(labels map[string]string, selector client.Selector) map[string]string {
	both := selector.Equalities()
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, labels)
	return both
}
