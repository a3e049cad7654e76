package commands

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/crifile"
	"github.com/crishim/crishim/internal/bounded"
)

const flagServeConfig = "config-file"

// readServeConfig takes flags from a file that a flag, or what stands for it, has
// named: a YAML map from the names of serve's flags to their values. What the command
// line says wins.
func readServeConfig(c *cli.Context, from, path string) error {
	if path == "" {
		return nil
	}
	content, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", from, err)}
	}
	known, names := serveFlagNames(c)
	given, set := map[string]bool{}, map[string]bool{}
	for _, flag := range known {
		given[flag] = c.IsSet(flag)
	}
	err = crifile.Settings(path, content, names, func(name, value string) error {
		flag := known[name]
		if set[flag] {
			return errors.New("this flag is set twice")
		}
		set[flag] = true
		if given[flag] {
			return nil
		}
		return c.Set(flag, value)
	})
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", from, err)}
	}
	return nil
}

// serveFlagNames are the names that may stand in the file, other names of a flag
// too, and the name that each flag is known by.
func serveFlagNames(c *cli.Context) (known map[string]string, names []string) {
	known = map[string]string{}
	for _, f := range c.Command.Flags {
		own := f.Names()
		if own[0] == flagServeConfig {
			continue
		}
		for _, name := range own {
			known[name] = own[0]
		}
		names = append(names, own...)
	}
	return known, names
}
