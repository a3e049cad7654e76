package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// configOptions are one look at the config file or one change of it.
type configOptions struct {
	get    string
	set    []setting
	output output.Options
}

type setting struct{ key, value string }

// newConfig shows and changes crictl's config file.
func newConfig(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "config",
		Usage:     "show or change the config file",
		ArgsUsage: "[KEY [VALUE]]",
		Description: describe("Without arguments lists every key with its value; with a key shows its value, with a value sets it. "+
			"The file is that of --config, CRI_CONFIG_FILE or /etc/crictl.yaml; comments and layout stay as they are. Keys: "+
			strings.Join(client.ConfigKeys(), ", ")+".",
			"crishim config", "crishim config --get timeout",
			"crishim config --set runtime-endpoint=unix:///run/containerd/containerd.sock,timeout=10", "crishim config debug true"),
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "get", Usage: "show the value of `KEY`"},
			&cli.StringSliceFlag{Name: "set", Usage: "set `KEY=VALUE`, or several separated by commas"},
			&cli.BoolFlag{Name: "list", Usage: "list all keys and values"},
		}, listFlags(output.SettingColumns)...),
		Action: action(env, configOptionsOf, runConfig),
	}
}

func configOptionsOf(env *Env, c *cli.Context) (configOptions, error) {
	var o configOptions
	var err error
	if o.output, err = readListFormat(env, c, output.SettingColumns); err != nil {
		return o, err
	}
	if err := argCount(c, 0, 2); err != nil {
		return o, err
	}
	ways := 0
	for _, given := range []bool{c.IsSet("get"), c.IsSet("set"), c.Bool("list"), c.Args().Present()} {
		if given {
			ways++
		}
	}
	if ways > 1 {
		return o, usagef("config: choose one of --get, --set, --list and arguments")
	}
	o.get = c.String("get")
	switch c.Args().Len() {
	case 1:
		o.get = c.Args().First()
	case 2:
		o.set = []setting{{c.Args().Get(0), c.Args().Get(1)}}
	}
	if c.IsSet("get") && o.get == "" {
		return o, usagef("--get needs a key")
	}
	for _, text := range c.StringSlice("set") {
		for one := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(one, "=")
			if !ok {
				return o, usagef("--set %s: want KEY=VALUE", quote(one))
			}
			o.set = append(o.set, setting{strings.TrimSpace(key), strings.TrimSpace(value)})
		}
	}
	return o, o.check()
}

// check tries the changes on an empty file, so that a mistake in the last of
// them is wrong usage and does not leave the first ones written.
func (o configOptions) check() error {
	var trial client.Config
	var errs []error
	for _, s := range o.set {
		errs = append(errs, trial.Set(s.key, s.value))
	}
	if o.get != "" {
		_, err := trial.Get(o.get)
		errs = append(errs, err)
	}
	return join(errs...)
}

func runConfig(_ context.Context, env *Env, o configOptions) error {
	source := env.configSource()
	source.New = len(o.set) > 0
	config, err := client.LoadConfig(source)
	if err != nil {
		return inputError{err}
	}
	switch {
	case len(o.set) > 0:
		var errs []error
		for _, s := range o.set {
			errs = append(errs, config.Set(s.key, s.value))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return config.Save()
	case o.get != "":
		value, err := config.Get(o.get)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(env.Out, output.Sanitize(value))
		return err
	}
	return listConfig(env, config, o.output)
}

func listConfig(env *Env, config *client.Config, o output.Options) error {
	var settings []output.Setting
	for _, key := range client.ConfigKeys() {
		value, err := config.Get(key)
		if err != nil {
			return err
		}
		settings = append(settings, output.Setting{Key: key, Value: value, Set: config.IsSet(key)})
	}
	return output.Settings(env.Out, settings, o)
}
