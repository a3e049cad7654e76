package cli

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// completeVerb is what the shells' scripts call with the words so far.
const completeVerb = "__complete"

// completeTimeout is how long a runtime may take: a person waits at the tab key.
const completeTimeout = 300 * time.Millisecond

// completeFiles tells the shell to complete file names by itself.
const completeFiles = ":files"

// candidate is one completion and what a shell may show with it.
type candidate struct{ value, text string }

// completion is the state of a command line whose last word is open.
type completion struct {
	env     *Env
	app     *urfave.App
	command *urfave.Command // nil before the verb
	verb    string
	args    []string // arguments of the verb before the open word
	pods    bool     // logs --all-containers: the arguments are pods
	flag    string   // the flag whose value is open
	prefix  string   // "--flag=" before an open value
	word    string
}

// complete writes the completions of the last word, one a line. It never
// fails: a shell has no place for an error.
func complete(ctx context.Context, env *Env, app *urfave.App, words []string) {
	for _, one := range completions(ctx, env, app, words) {
		line := one.value
		if one.text != "" {
			line += "\t" + output.Sanitize(one.text)
		}
		_, _ = io.WriteString(env.Out, line+"\n")
	}
}

// completions are whole words that the last one may become, and completeFiles.
func completions(ctx context.Context, env *Env, app *urfave.App, words []string) []candidate {
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
			case info.name == "all-containers":
				c.pods = true
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
		c.flag, c.prefix, c.word = flagName(name), name+"=", value
	}
}

func (c *completion) note(flag, value string) {
	switch flag {
	case "runtime-endpoint":
		c.env.global.runtimeEndpoints = []string{value}
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
	case c.command == nil && (c.verb == "help" || c.verb == "h") && len(c.args) == 0:
		return c.verbs()
	case c.command == nil && c.verb != "":
		return nil
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

// flags are those of the verb in every form, and the global ones in their
// long form, which may stand behind the verb as well.
func (c *completion) flags() []candidate {
	out := []candidate{{"--help", "show help"}}
	add := func(flags []urfave.Flag, short bool) {
		for _, f := range flags {
			if v, ok := f.(urfave.VisibleFlag); ok && !v.IsVisible() {
				continue
			}
			text := ""
			if d, ok := f.(urfave.DocGenerationFlag); ok {
				text = strings.ReplaceAll(d.GetUsage(), "`", "")
			}
			for _, name := range f.Names() {
				if short || len(name) > 1 {
					out = append(out, candidate{Dashed(name), text})
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

// flagValues complete the value of a flag. What has a fixed set of values is
// listed; the rest is left to the shell, which knows files.
func (c *completion) flagValues(ctx context.Context) []candidate {
	flags := c.app.Flags
	if c.command != nil {
		flags = slices.Concat(c.command.Flags, flags)
	}
	i := slices.IndexFunc(flags, func(f urfave.Flag) bool { return slices.Contains(f.Names(), c.flag) })
	if i < 0 {
		return nil
	}
	if flag, ok := flags[i].(interface{ values() []string }); ok && len(flag.values()) > 0 {
		if c.flag == "columns" {
			c.openList()
		}
		return named(flag.values())
	}
	switch flags[i].Names()[0] {
	case "pod":
		return c.podNames(ctx)
	case "image":
		return c.imageNames(ctx)
	case "runtime-endpoint", "image-endpoint":
		out := []candidate{{"docker://", "the embedded dockershim"}}
		for _, k := range client.KnownSockets() {
			out = append(out, candidate{"unix://" + k.Path, k.Name})
		}
		return out
	case flagHosts:
		c.openList()
		names, _ := c.env.sshHosts("") // none is no harm
		return sorted(named(names))
	case "namespace", "in-namespace":
		return c.namespaces(ctx)
	case "container":
		return c.containersOfPod(ctx)
	case "get", "set":
		if c.verb == "config" {
			return named(client.ConfigKeys())
		}
	}
	return []candidate{{completeFiles, ""}}
}

// openList leaves the last of a list, separated by commas, to be completed.
func (c *completion) openList() {
	at := strings.LastIndexByte(c.word, ',') + 1
	c.prefix, c.word = c.prefix+c.word[:at], c.word[at:]
}

func named(values []string) []candidate {
	var out []candidate
	for _, v := range values {
		out = append(out, candidate{v, ""})
	}
	return out
}

// arguments complete what a verb works on, which its usage line names.
func (c *completion) arguments(ctx context.Context) (out []candidate) {
	files := []candidate{{completeFiles, ""}}
	first, _, _ := strings.Cut(c.command.ArgsUsage, " ")
	if len(c.args) > 0 && !strings.HasSuffix(first, "...") && c.verb != "cp" {
		return files
	}
	if len(c.command.Subcommands) > 0 && len(c.args) == 0 {
		out = files
		for _, sub := range c.command.Subcommands {
			out = append(out, candidate{sub.Name, sub.Usage})
		}
	}
	switch strings.TrimSuffix(strings.Trim(first, "[]"), "...") {
	case "CONTAINER", "CONTAINER...", "TARGET":
		if c.pods {
			return append(out, c.podNames(ctx)...)
		}
		return append(out, c.containerNames(ctx)...)
	case "CONTAINER:PATH|PATH|-":
		return append(c.containerNames(ctx), files...)
	case "POD", "NAMESPACE/]NAME":
		return append(out, c.podNames(ctx)...)
	case "POD|CONTAINER":
		both := sorted(append(c.podNames(ctx), c.containerNames(ctx)...))
		return slices.CompactFunc(both, func(a, b candidate) bool { return a.value == b.value })
	case "IMAGE", "IMAGE...", "REPOSITORY[:TAG":
		return append(out, c.imageNames(ctx)...)
	case "bash|zsh|fish":
		return named(strings.Split("bash|zsh|fish", "|"))
	case "KEY":
		return named(client.ConfigKeys())
	}
	return append(out, files...)
}

func sorted(list []candidate) []candidate {
	list = slices.DeleteFunc(list, func(c candidate) bool { return c.value == "" })
	slices.SortStableFunc(list, func(a, b candidate) int { return strings.Compare(a.value, b.value) })
	return list
}
