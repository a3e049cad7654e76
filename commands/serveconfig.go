package commands

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"sigs.k8s.io/yaml"
)

const flagServeConfig = "config-file"

// readServeConfig takes flags from the file that --config-file names: a YAML map
// from the names of serve's flags to their values. What the command line says
// wins.
func readServeConfig(c *cli.Context) error {
	path := c.String(flagServeConfig)
	if path == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", flagServeConfig, err)}
	}
	var settings map[string]any
	if err := yaml.UnmarshalStrict(content, &settings); err != nil {
		return inputError{fmt.Errorf("--%s %s: %w", flagServeConfig, path, err)}
	}
	known := serveFlagNames(c)
	for name, value := range settings {
		if !slices.Contains(known, name) {
			return inputError{fmt.Errorf("--%s %s: serve has no flag %q", flagServeConfig, path, name)}
		}
		text, err := flagText(value)
		if err == nil && !c.IsSet(name) {
			err = c.Set(name, text)
		}
		if err != nil {
			return inputError{fmt.Errorf("--%s %s: %s: %w", flagServeConfig, path, name, err)}
		}
	}
	return nil
}

func serveFlagNames(c *cli.Context) []string {
	var names []string
	for _, f := range c.Command.Flags {
		if name := f.Names()[0]; name != flagServeConfig {
			names = append(names, name)
		}
	}
	return names
}

// flagText is a value as it would stand on the command line.
func flagText(value any) (string, error) {
	switch v := value.(type) {
	case string, bool, int64:
		return fmt.Sprint(v), nil
	case float64: // all numbers are; flags do not read 1e+06
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			text, err := flagText(part)
			if err != nil {
				return "", err
			}
			parts[i] = text
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("want a text, a number, true or false, or a list of those")
}
