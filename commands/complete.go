package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/logfile"
	"github.com/crishim/crishim/output"
)

// completeVerb is what the shells' scripts call with the words so far.
const completeVerb = "__complete"

// completeTimeout is how long a runtime may take for its part: somebody is
// waiting with a finger on the tab key.
const completeTimeout = 300 * time.Millisecond

// completeFiles tells the shell to complete file names by itself.
const completeFiles = ":files"

// candidate is one completion and what a shell may show beside it.
type candidate struct{ value, text string }

// completion is the state of a command line whose last word is open.
type completion struct {
	env     *Env
	app     *cli.App
	command *cli.Command // nil before the verb
	verb    string
	args    []string // arguments of the verb before the open word
	flag    string   // the flag whose value is open
	prefix  string   // "--flag=" before an open value
	word    string
}

// complete writes the completions of the last word, one a line. It never
// fails: a shell has no place for an error.
func complete(ctx context.Context, env *Env, app *cli.App, words []string) {
	for _, one := range completions(ctx, env, app, words) {
		line := one.value
		if one.text != "" {
			line += "\t" + output.Sanitize(one.text)
		}
		_, _ = io.WriteString(env.Out, line+"\n")
	}
}

// completions are whole words that the last one may become, and completeFiles.
func completions(ctx context.Context, env *Env, app *cli.App, words []string) []candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	c := &completion{env: env, app: app, word: words[len(words)-1]}
	c.read(words[:len(words)-1])
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(env.CompleteTimeout, completeTimeout))
	defer cancel()
	seen := map[string]bool{}
	var out []candidate
	for _, one := range c.candidates(ctx) {
		if seen[one.value] || !strings.HasPrefix(one.value, c.word) && one.value != completeFiles {
			continue
		}
		seen[one.value] = true
		if one.value != completeFiles {
			one.value = c.prefix + one.value
		}
		out = append(out, one)
	}
	return out
}

// read walks the finished words. Flags that choose the runtime count, so
// that names come from the one that the command will ask.
func (c *completion) read(words []string) {
	global := tableOf(c.app.Flags)
	local := flagTable{}
	for i, word := range words {
		if c.flag != "" {
			c.note(c.flag, word)
			c.flag = ""
			continue
		}
		if looksLikeFlag(word) && word != "--" {
			name, value, has := strings.Cut(strings.TrimLeft(word, "-"), "=")
			info, ok := local[name]
			if !ok {
				info = global[name]
			}
			switch {
			case has:
				c.note(info.name, value)
			case info.value:
				c.flag = info.name
			}
			continue
		}
		if c.command == nil {
			if c.command = c.app.Command(word); c.command == nil {
				c.verb = word // nothing is known of it
				c.args = words[i+1:]
				return
			}
			c.verb, local = c.command.Name, tableOf(c.command.Flags)
			continue
		}
		c.args = append(c.args, word)
	}
	if name, value, ok := strings.Cut(c.word, "="); ok && looksLikeFlag(name) && c.flag == "" {
		c.flag, c.prefix, c.word = strings.TrimLeft(name, "-"), name+"=", value
	}
}

func (c *completion) note(flag, value string) {
	switch flag {
	case "runtime-endpoint":
		c.env.global.runtimeEndpoint = value
	case "image-endpoint":
		c.env.global.imageEndpoint = value
	case "config":
		c.env.global.config = value
	}
}

func (c *completion) candidates(ctx context.Context) []candidate {
	switch {
	case c.flag != "":
		return c.flagValues(ctx)
	case c.command == nil && c.verb != "":
		return c.helpTopics()
	case strings.HasPrefix(c.word, "-"):
		return c.flags()
	case c.command == nil:
		return c.verbs()
	}
	return c.arguments(ctx)
}

func (c *completion) verbs() []candidate {
	out := []candidate{{"help", "show help for a command"}}
	for _, v := range c.app.Commands {
		if !v.Hidden {
			out = append(out, candidate{v.Name, v.Usage})
		}
	}
	return sorted(out)
}

func (c *completion) helpTopics() []candidate {
	if c.verb != "help" && c.verb != "h" || len(c.args) > 0 {
		return nil
	}
	return c.verbs()
}

// flags are those of the verb in every form, and the global ones in their
// long form, which may stand behind the verb as well.
func (c *completion) flags() []candidate {
	out := []candidate{{"--help", "show help"}}
	add := func(flags []cli.Flag, short bool) {
		for _, f := range flags {
			if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
				continue
			}
			text := ""
			if d, ok := f.(cli.DocGenerationFlag); ok {
				text = strings.ReplaceAll(d.GetUsage(), "`", "")
			}
			for _, name := range f.Names() {
				if short || len(name) > 1 {
					out = append(out, candidate{dashed(name), text})
				}
			}
		}
	}
	if c.command != nil {
		add(c.command.Flags, true)
	}
	add(c.app.Flags, c.command == nil)
	return out
}

// fixedValues are those of flags that mean the same whatever the verb.
var fixedValues = map[string][]string{
	"for":       {"running", "exited", "removed", "ready", "notready", "log=", "image="},
	"stream":    {logfile.Stdout, logfile.Stderr},
	"profile":   {"general", "net", "sys"},
	"network":   {"pod", "host"},
	"compat":    {"crictl"},
	"transport": {"spdy", "websocket"},
	"wait":      {"ready"},
}

// flagValues complete the value of a flag. What has a fixed set of values is
// listed; the rest is left to the shell, which knows files.
func (c *completion) flagValues(ctx context.Context) []candidate {
	if values, ok := fixedValues[c.flag]; ok {
		return named(values)
	}
	switch c.flag {
	case "output", "o":
		if c.verb == "logs" {
			return named([]string{"text", "json"})
		}
		return named(strings.Split(strings.ReplaceAll(output.FormatNames(), "TEMPLATE", ""), "|"))
	case "state", "s":
		if c.verb == "pods" || c.verb == "inspectp" {
			return named([]string{"ready", "notready"})
		}
		return named([]string{"created", "running", "exited", "unknown"})
	case "pod", "p":
		return c.podNames(ctx)
	case "image":
		return c.imageNames(ctx)
	case "runtime-endpoint", "r", "image-endpoint", "i":
		out := []candidate{{"docker://", "the built-in dockershim"}}
		for _, k := range client.KnownSockets() {
			out = append(out, candidate{"unix://" + k.Path, k.Name})
		}
		return out
	case "namespace":
		return c.namespaces(ctx)
	case "columns", "sort":
		return c.columns()
	case "get", "set":
		if c.verb == "config" {
			return named(client.ConfigKeys())
		}
	}
	return []candidate{{completeFiles, ""}}
}

// columns are those of the verb's table. Of a list of them the last is open.
func (c *completion) columns() []candidate {
	if i := strings.LastIndexByte(c.word, ','); i >= 0 && c.flag == "columns" {
		c.prefix, c.word = c.prefix+c.word[:i+1], c.word[i+1:]
	}
	return named(map[string]output.Columns{
		"ps": output.ContainerColumns, "pods": output.PodColumns, "images": output.ImageColumns, "stats": output.StatsColumns, "statsp": output.PodStatsColumns,
		"endpoints": output.EndpointColumns, "doctor": output.FindingColumns, "events": output.EventColumns, "config": output.SettingColumns,
	}[c.verb])
}

func named(values []string) []candidate {
	var out []candidate
	for _, v := range values {
		if v != "" {
			out = append(out, candidate{v, ""})
		}
	}
	return out
}

// Verbs by what their arguments name.
var (
	containerVerbs = []string{"start", "stop", "rm", "inspect", "logs", "exec", "attach", "update", "checkpoint", "wait", "stats", "cp", "debug"}
	podVerbs       = []string{"stopp", "rmp", "inspectp", "port-forward", "statsp", "pods", "describe", "delete"}
	imageVerbs     = []string{"rmi", "inspecti", "images", "pull"}
	onlyOne        = []string{"logs", "exec", "attach", "checkpoint", "debug", "port-forward"}
)

// arguments complete what a verb works on.
func (c *completion) arguments(ctx context.Context) []candidate {
	if slices.Contains(onlyOne, c.verb) && len(c.args) > 0 && c.verb != "logs" {
		return []candidate{{completeFiles, ""}}
	}
	switch {
	case len(c.command.Subcommands) > 0 && len(c.args) == 0:
		out := []candidate{{completeFiles, ""}}
		for _, sub := range c.command.Subcommands {
			out = append(out, candidate{sub.Name, sub.Usage})
		}
		return append(out, c.firstArgument(ctx)...)
	case c.verb == "cp":
		return append(c.containerNames(ctx), candidate{completeFiles, ""})
	case slices.Contains(containerVerbs, c.verb):
		return c.containerNames(ctx)
	case slices.Contains(podVerbs, c.verb):
		return c.podNames(ctx)
	case slices.Contains(imageVerbs, c.verb):
		return c.imageNames(ctx)
	case c.verb == "completion":
		return named(shells())
	case c.verb == "config" && len(c.args) == 0:
		return named(client.ConfigKeys())
	}
	return []candidate{{completeFiles, ""}}
}

// firstArgument is for verbs with subcommands, whose own argument may stand
// in the subcommand's place.
func (c *completion) firstArgument(ctx context.Context) []candidate {
	switch c.verb {
	case "create":
		return c.podNames(ctx)
	case "run", "pull":
		return c.imageNames(ctx)
	}
	return nil
}

func shortID(id string) string { return id[:min(13, len(id))] }

func sinceText(now time.Time, created int64) string {
	return fmt.Sprintf("%s old", now.Sub(time.Unix(0, created)).Round(time.Second))
}
