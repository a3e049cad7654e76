package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/output"
)

// configOptions are the options of config.
type configOptions struct {
	get  string
	set  []string // KEY=VALUE
	list bool
	view cli.View
}

// NewConfig returns the verb that shows and changes crictl's config file.
func NewConfig(in *cli.Invocation) *cli.Verb {
	o := &configOptions{}
	return &cli.Verb{
		Usage:     "Show or change the config file",
		ArgsUsage: "[KEY [VALUE]]",
		Args:      cli.First(cli.CompleteWords(client.ConfigKeys()...), nil),
		Description: cli.WithExamples("Without arguments, lists all keys with their values. KEY shows the value of a key, KEY VALUE sets it. "+
			"The file is given by --config or CRI_CONFIG_FILE, else /etc/crictl.yaml; comments are kept, empty lines are not. Keys: "+
			strings.Join(client.ConfigKeys(), ", ")+".",
			"crishim config", "crishim config --get timeout",
			"crishim config --set runtime-endpoint=unix:///run/crio/crio.sock,timeout=10", "crishim config debug true"),
		Flags: append([]urfave.Flag{
			cli.StringFlag(&o.get, "get", "Show the value of `KEY`"),
			cli.StringsFlag(&o.set, "set", "Set `KEY=VALUE`, or several separated by commas"),
			cli.BoolFlag(&o.list, "list", "List all keys and values"),
		}, o.view.ListFlags(output.SettingColumns, "keys")...),
		Check: o.check,
		Run:   o.run,
	}
}

func (o *configOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if err := cmp.Or(o.view.Check(in), cli.ArgCount(c, 0, 2)); err != nil {
		return err
	}
	ways := 0
	for _, given := range []bool{c.IsSet("get"), c.IsSet("set"), o.list, c.Args().Present()} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return cli.Usagef("config: choose one of --get, --set, --list and arguments")
	case c.IsSet("get") && o.get == "":
		return cli.Usagef("--get needs a key")
	}
	settings := strings.Split(strings.Join(o.set, ","), ",")
	if len(o.set) == 0 {
		settings = nil
	}
	switch n := c.Args().Len(); {
	case in.Compat && ways == 0 && o.view.FormatFlag == "":
		return &cli.UsageError{Text: "config needs --get, --set or --list", Kind: argv.NoArguments}
	case in.Compat && n == 1: // crictl reads KEY as KEY=, and rejects the empty value except for the endpoints
		return cli.Usagef("config: %s needs a value", c.Args().First())
	case n == 1:
		o.get = c.Args().First()
	case n == 2:
		settings = []string{c.Args().Get(0) + "=" + c.Args().Get(1)}
	}
	o.set = settings
	// The changes are first tried on an empty file, so that a mistake in a later change is a usage error and writes nothing.
	var trial client.Config
	errs := []error{o.change(&trial)}
	if o.get != "" {
		_, err := trial.Get(o.get)
		errs = append(errs, err)
	}
	return cli.Join(errs...)
}

func (o *configOptions) change(config *client.Config) error {
	var errs []error
	for _, text := range o.set {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return cli.Invalid("set", text, "must be KEY=VALUE")
		}
		errs = append(errs, config.Set(strings.TrimSpace(key), strings.TrimSpace(value)))
	}
	return cli.Join(errs...)
}

func (o *configOptions) run(_ context.Context, printer *cli.Printer, connector *cli.Connector) error {
	source := connector.ConfigSource()
	source.New = len(o.set) > 0
	config, err := client.LoadConfig(source)
	if err != nil {
		return cli.BadInput(err)
	}
	switch {
	case len(o.set) > 0:
		if err := o.change(config); err != nil {
			return err
		}
		if printer.Compat {
			if err := config.AddMissing(); err != nil {
				return err
			}
		}
		return config.Save()
	case o.get != "":
		value, err := config.Get(o.get)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(printer.Out, output.Sanitize(value))
		return err
	}
	var settings []output.Setting
	for _, key := range client.ConfigKeys() {
		value, err := config.Get(key)
		if err != nil {
			return err
		}
		settings = append(settings, output.Setting{Key: key, Value: value, Set: config.IsSet(key)})
	}
	return output.Settings(printer.Out, settings, o.view.Options)
}
