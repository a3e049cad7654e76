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
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/output"
)

// completeVerb is the hidden verb that the shells' completion scripts call with the words so far.
const completeVerb = "__complete"

// completeTimeout is short because a person waits at the tab key.
const completeTimeout = 300 * time.Millisecond

// completer completes the last word of a command line.
type completer struct {
	completion
	app     *App
	command *urfave.Command // nil before the verb
	verb    string
	flag    string // the flag whose value is completed
	prefix  string // "--flag=" and finished list elements before the word to complete
}

// complete writes the completions of the last word, one per line. It never fails, because a shell cannot show an
// error.
func complete(ctx context.Context, app *App, words []string) {
	for _, one := range completions(ctx, app, words) {
		line := one.value
		if one.text != "" {
			line += "\t" + output.Sanitize(one.text)
		}
		_, _ = io.WriteString(app.in.Out, line+"\n")
	}
}

// completions returns the candidates for the last word. completeFiles among them asks the shell for file names.
func completions(ctx context.Context, app *App, words []string) []candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	c := &completer{app: app, completion: completion{connector: app.connector, now: app.in.Now, given: map[string]bool{}, word: words[len(words)-1]}}
	c.read(words[:len(words)-1])
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(app.in.CompleteTimeout, completeTimeout))
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
	if c.conn != nil {
		c.conn.Close()
	}
	return out
}

// read parses the words before the last. It applies the flags that choose the runtime, so that names come from the
// runtime that the command will use.
func (c *completer) read(words []string) {
	global := tableOf(c.app.Flags)
	local := argv.Flags{}
	for i, word := range words {
		switch {
		case c.flag != "":
			c.setGlobal(c.flag, word)
			c.flag = ""
		case argv.IsFlag(word) && word != "--":
			name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
			info, ok := local[name]
			if !ok {
				info = global[name]
			}
			c.given[info.Name] = true
			if hasValue {
				c.setGlobal(info.Name, value)
			} else if info.Value {
				c.flag = info.Name
			}
		case c.command != nil:
			c.args = append(c.args, word)
		default:
			if c.command = c.app.verb(word); c.command == nil {
				c.verb, c.args = word, words[i+1:]
				return
			}
			c.verb, local = c.command.Name, tableOf(c.command.Flags)
		}
	}
	if name, value, ok := strings.Cut(c.word, "="); ok && argv.IsFlag(name) && c.flag == "" {
		c.flag, c.prefix, c.word = argv.FlagName(name), name+"=", value
	}
}

// setGlobal keeps the value of a flag that chooses the runtime.
func (c *completer) setGlobal(flag, value string) {
	switch flag {
	case "runtime-endpoint":
		c.app.connector.runtimeEndpoints = []string{value}
	case "image-endpoint":
		c.app.connector.imageEndpoint = value
	case "config":
		c.app.connector.config = value
	}
}

func (c *completer) candidates(ctx context.Context) []candidate {
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
	var out []candidate
	if len(c.args) == 0 {
		for _, sub := range c.command.Subcommands {
			out = append(out, candidate{sub.Name, sub.Usage})
		}
	}
	if args := c.app.args[c.verb]; args != nil {
		out = append(out, args(ctx, &c.completion)...)
	}
	return slices.DeleteFunc(out, func(one candidate) bool { return slices.Contains(c.args, one.value) })
}

func (c *completer) verbs() []candidate {
	out := []candidate{{"help", "Show help for a command"}}
	for _, group := range c.app.groups {
		for _, e := range group.Verbs {
			out = append(out, candidate{e.Names[0], e.Build(c.app.in).Usage})
		}
	}
	return sorted(out)
}

// flags returns the flags of the verb in every form, and the long form of the global flags, which may also follow the
// verb.
func (c *completer) flags() []candidate {
	out := []candidate{{"--help", "Show help"}}
	add := func(flags []urfave.Flag, short bool) {
		for _, f := range flags {
			if !IsVisible(f) {
				continue
			}
			text := ""
			if d, ok := f.(urfave.DocGenerationFlag); ok {
				text = strings.ReplaceAll(d.GetUsage(), "`", "")
			}
			for _, name := range f.Names() {
				if short || len(name) > 1 {
					out = append(out, candidate{argv.Dashed(name), text})
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

// flagValues completes the value of a flag: a word from the flag's list, or the name of an object. For all other flags
// the shell completes file names.
func (c *completer) flagValues(ctx context.Context) []candidate {
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
		return slices.DeleteFunc(named(flag.values()), func(one candidate) bool {
			return slices.Contains(strings.Split(c.prefix[strings.IndexByte(c.prefix, '=')+1:], ","), one.value)
		})
	}
	switch flags[i].Names()[0] {
	case "pod":
		return CompletePods(ctx, &c.completion)
	case "image":
		return CompleteImages(ctx, &c.completion)
	case "runtime-endpoint", "image-endpoint":
		out := []candidate{{"docker://", "the embedded dockershim"}}
		for _, k := range client.KnownSockets() {
			out = append(out, candidate{"unix://" + k.Path, k.Name})
		}
		return out
	case flagHosts:
		c.openList()
		names, _ := sshHosts(c.app.in.getenv("HOME"), "") // without hosts, nothing is offered
		return sorted(named(names))
	case "namespace", "in-namespace":
		return CompleteNamespaces(ctx, &c.completion)
	case "container":
		return c.containersOfPod(ctx)
	case "signal":
		return named(strings.Fields("HUP INT QUIT KILL USR1 USR2 TERM CONT STOP WINCH"))
	case "get", "set":
		if c.verb == "config" {
			return named(client.ConfigKeys())
		}
	}
	return CompleteFiles(ctx, &c.completion)
}

// openList completes only the last element of a comma-separated list.
func (c *completer) openList() {
	at := strings.LastIndexByte(c.word, ',') + 1
	c.prefix, c.word = c.prefix+c.word[:at], c.word[at:]
}
