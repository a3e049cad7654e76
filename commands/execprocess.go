package commands

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
)

// readProcess reads what surrounds the command of an exec.
func readProcess(c *cli.Context) (client.Process, error) {
	p := client.Process{Env: c.StringSlice("env"), WorkingDir: c.String("workdir"), User: c.String("user")}
	for _, variable := range p.Env {
		if name, _, ok := strings.Cut(variable, "="); !ok || name == "" {
			return p, usagef("--env %s: want NAME=VALUE", quote(variable))
		}
	}
	if p.WorkingDir != "" && !strings.HasPrefix(p.WorkingDir, "/") {
		return p, usagef("--workdir %s: want an absolute path", quote(p.WorkingDir))
	}
	return p, nil
}
