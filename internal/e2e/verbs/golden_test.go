package verbs

import (
	"testing"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// Reading verbs do not change the node, so they share one.
func TestReadingVerbs(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for name, args := range map[string][]string{
		"help":                            {"--help"},
		"version":                         {"version"},
		"version-json":                    {"version", "-o", "json"},
		"info":                            {"info"},
		"info-quiet-yaml":                 {"info", "-q", "-o", "yaml"},
		"runtime-config":                  {"runtime-config"},
		"imagefsinfo":                     {"imagefsinfo"},
		"images":                          {"images"},
		"images-digests-pinned":           {"images", "--digests", "--pinned"},
		"images-quiet":                    {"images", "-q"},
		"images-by-repository":            {"images", "registry.example.com/app"},
		"images-by-tag":                   {"img", "registry.example.com/app:v1", "-o", "name"},
		"images-nothing-found":            {"images", "nosuch"},
		"images-filter-reference":         {"images", "--filter", "reference=pause"},
		"images-filter-before":            {"images", "-f", "before=registry.example.com/app:v1", "-q"},
		"images-filter-unknown-reference": {"images", "-f", "since=nosuch"},
		"inspecti":                        {"inspecti", "busybox"},
		"inspecti-several-one-missing":    {"inspecti", "busybox", "nosuch", "-o", "jsonpath={.status.repoTags[0]}"},
		"pods":                            {"pods"},
		"pods-by-namespace-and-state":     {"pods", "--namespace", "^prod$", "--state", "ready", "--no-trunc"},
		"pods-latest-json":                {"pods", "--latest", "-o", "json"},
		"pods-by-label-quiet":             {"pods", "--label", "app=web", "-q"},
		"inspectp":                        {"inspectp", "web"},
		"ps":                              {"ps"},
		"ps-all":                          {"ps", "-a"},
		"ps-all-wide":                     {"ps", "-av"},
		"ps-by-pod-name":                  {"ps", "--pod", "db", "--all", "-q"},
		"ps-by-state":                     {"ps", "--state", "Exited"},
		"ps-by-name-columns":              {"ps", "-a", "--name", "^(nginx|migrate)$", "--columns", "name,state", "--no-headers", "--sort", "name"},
		"ps-last-two":                     {"ps", "--last", "2", "-o", "name"},
		"ps-by-image":                     {"ps", "--image", "busybox", "-o", "jsonl"},
		"ps-by-missing-image":             {"ps", "--image", "nosuch"},
		"inspect":                         {"inspect", "web"},
		"inspect-by-filter":               {"inspect", "--name", "nginx", "-q", "-o", "yaml"},
		"inspect-unknown":                 {"inspect", "nosuch"},
		"inspect-template-after-argument": {"inspect", "web/nginx", "--template", "{{.status.state}}"},
		"help-all":                        {"help", "all"},
		"help-stop":                       {"help", "stop"},
		"help-run":                        {"run", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			sub := *c
			sub.t = t
			sub.golden(name, args...)
		})
	}
}
