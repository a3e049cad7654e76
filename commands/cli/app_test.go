package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"
)

func TestACommandLineBuildsOnlyItsVerb(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"crishim --version":            nil,
		"crishim":                      nil, // the list of commands
		"crishim run-it":               {"run-it"},
		"crishim ri":                   {"run-it"},
		"crishim --debug run-it x":     {"run-it"},
		"crishim help run-it":          {"run-it"},
		"crishim run-it --help":        {"run-it"},
		"crictl run-it":                {"run-it"},
		"crishim __complete run-it x":  {"run-it"},
		"crishim help all":             {"run-it", "other"},
		"crishim __complete help run-": {"run-it", "other"},
	} {
		var built []string
		entry := func(names ...string) Entry {
			return Entry{Names: names, Build: func(*Invocation) *Verb {
				built = append(built, names[0])
				return &Verb{
					Check: func(*Invocation, *urfave.Context) error { return nil },
					Run:   func(context.Context, *Printer, *Connector) error { return nil },
				}
			}}
		}
		p := &Process{
			In: strings.NewReader(""), Out: io.Discard, Err: t.Output(), LookupEnv: func(string) (string, bool) { return "", false },
			Width: func() int { return 80 },
		}
		status := Run(t.Context(), strings.Fields(line), p, []Group{{Title: "All", Verbs: []Entry{entry("run-it", "ri"), entry("other")}}})
		if status != 0 || !slices.Equal(built, want) {
			t.Errorf("%s: exit %d, built %q, want %q", line, status, built, want)
		}
	}
}
