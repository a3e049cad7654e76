package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crishim/crishim/client/suggest"
)

// commandLine is an argv in the order that urfave reads: global flags, the verb, its flags, all in
// their long form, "--", its arguments.
type commandLine struct {
	Args    []string
	Verb    string
	Version bool
	compat  bool            // --compat=crictl
	sub     bool            // a verb of the verb follows
	seen    map[string]bool // flags of the verb
	rest    []string        // the verb's arguments
	help    *Help           // the page to show; nil for none
	page    *Help           // the page of the verb
}

type arranger struct {
	verb                 string
	global, local        flagTable
	globals, flags, rest []string
	compat               bool // crictl's own flags and forms only
}

// Arrange orders an argv: flags may stand after arguments, and global flags after the verb.
func Arrange(app *App, args []string) (commandLine, error) {
	a := &arranger{global: tableOf(app.Flags), compat: len(args) > 0 && filepath.Base(args[0]) == "crictl"}
	tail, err := a.globalPart(args)
	a.compat = a.compat || slices.Contains(a.globals, "--compat=crictl")
	line := commandLine{compat: a.compat, page: &Help{app: app}}
	if err != nil {
		return line, behindVerb(app, args, err)
	}
	if givenFlags(a.globals)["version"] {
		return commandLine{Version: true}, nil
	}
	switch {
	case len(tail) == 0, givenFlags(a.globals)["help"]:
		line.help = &Help{app: app}
		return line, nil
	case tail[0] == "help" || tail[0] == "h":
		line.help, err = helpOn(app, tail[1:])
		return line, err
	}
	command := app.Command(tail[0])
	if command == nil {
		return line, unknownCommand(app, tail)
	}
	line.Verb = command.Name
	globals, verb := a.globals, []string{command.Name}
	for tail = tail[1:]; len(tail) > 0 && command.Command(tail[0]) != nil; tail = tail[1:] {
		command, line.sub = command.Command(tail[0]), true
		verb = append(verb, command.Name)
	}
	a.globals, a.verb, a.local = nil, line.Verb, tableOf(command.Flags)
	switch {
	case !a.compat:
		for _, name := range impliedFlags[line.Verb] {
			if !a.local.has(name) {
				a.local[name] = flagInfo{}
			}
		}
	case a.local.has("last"):
		a.local["n"] = a.local["last"]
	}
	err = a.verbPart(tail)
	line.compat = line.compat || slices.Contains(a.globals, "--compat=crictl")
	line.seen, line.rest = givenFlags(a.flags), a.rest
	line.page = &Help{app: app, command: command, name: strings.Join(verb, " ")}
	if line.seen["help"] && err == nil {
		line.help = line.page
		return line, nil
	}
	if err == nil {
		err = line.checkEmpty()
	}
	if err != nil {
		return line, addUsage("crishim "+strings.Join(verb, " ")+" [options] "+command.ArgsUsage, err)
	}
	line.Args = slices.Concat([]string{"crishim"}, globals, a.globals, verb, a.flags, []string{"--"}, a.rest)
	return line, nil
}

// checkEmpty refuses an empty argument, such as "$ID" of an unset variable. Arguments of a command in a
// container may be empty.
func (l commandLine) checkEmpty() error {
	names := l.rest
	switch l.Verb {
	case "exec", "debug", "run", "config":
		names = names[:min(1, len(names))]
	}
	if slices.Contains(names, "") {
		return Usagef("%s: an argument is empty", l.Verb)
	}
	return nil
}

// globalPart takes the flags before the verb and returns the words after them.
func (a *arranger) globalPart(args []string) ([]string, error) {
	for args = args[min(1, len(args)):]; len(args) > 0 && looksLikeFlag(args[0]); {
		if args[0] == "--" {
			return args[1:], nil
		}
		flags, used, err := a.global.take(args)
		if err != nil {
			return nil, a.explain(err)
		}
		a.globals = append(a.globals, flags...)
		args = args[used:]
	}
	return args, nil
}

// verbPart sorts the words after the verb.
func (a *arranger) verbPart(args []string) error {
	for words := args; len(words) > 0; {
		if looksLikeFlag(words[0]) && words[0] != "--" {
			used, err := a.flag(words)
			if err != nil {
				return err
			}
			words = words[used:]
			continue
		}
		before := args[:len(args)-len(words)]
		ended := words[0] == "--"
		if ended {
			words = words[1:]
		}
		switch {
		case len(words) > 0 && a.runsCommand(words):
			a.rest = append(a.rest, words[0])
			return a.commandPart(before, words[1:], ended)
		case ended:
			a.rest = append(a.rest, words...)
			return nil
		}
		a.rest, words = append(a.rest, words[0]), words[1:]
	}
	return nil
}

// flag takes the flag that args begin with: one of the verb, or a global one in its long form.
func (a *arranger) flag(args []string) (used int, err error) {
	if flag, used := a.local.assignment(args); used > 0 && !a.compat {
		a.flags = append(a.flags, flag)
		return used, nil
	}
	flags, used, err := a.local.take(args)
	if err == nil {
		a.flags = append(a.flags, flags...)
		return used, nil
	}
	name := flagName(args[0])
	switch {
	case a.local.has(name):
		return 0, err
	case strings.HasPrefix(args[0], "--") && a.global.has(name):
		flags, used, err = a.global.take(args)
		a.globals = append(a.globals, flags...)
		return used, err
	}
	return 0, a.explain(err)
}

// explain adds a hint to the error about an unknown flag.
func (a *arranger) explain(err error) error {
	var usage *UsageError
	if !errors.As(err, &usage) || usage.unknownFlags == nil {
		return err
	}
	var names []string
	for _, table := range []flagTable{a.local, a.global} {
		for name := range table {
			if len(name) > 1 {
				names = append(names, name)
			}
		}
	}
	if best := suggest.Closest(usage.unknownFlags[0], names); best != "" {
		usage.Next = "did you mean --" + best + "?"
	}
	for _, name := range usage.unknownFlags {
		if hint := cmp.Or(FlagsOfOthers[a.verb+" "+name], FlagsOfOthers[name]); hint != "" && a.verb != "" {
			usage.Next, usage.otherFlag = strings.ReplaceAll(hint, "VERB", a.verb), true
			break
		}
	}
	usage.Next = cmp.Or(usage.Next, FlagsOfOthers[a.verb+" *"])
	return usage
}

// behindVerb adds a hint to the error about an unknown flag before the verb that is a flag of the verb.
func behindVerb(app *App, args []string, err error) error {
	var usage *UsageError
	if !errors.As(err, &usage) || usage.unknownFlags == nil {
		return err
	}
	for _, word := range args {
		if command := app.Command(word); command != nil && tableOf(command.Flags).has(usage.unknownFlags[0]) {
			usage.Next = fmt.Sprintf("it is a flag of %s: `crishim %[1]s %s`", word, Dashed(usage.unknownFlags[0]))
		}
	}
	return usage
}

// unknownCommand returns the error about a word that is no verb.
func unknownCommand(app *App, words []string) error {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Names()...)
	}
	err := &UsageError{Text: "unknown command " + Quote(words[0]), Kind: noSuchCommand, Next: "`crishim help` lists the commands"}
	if best := suggest.Closest(words[0], names); best != "" {
		err.Next = "did you mean `crishim " + best + "`?"
	}
	for n := range min(2, len(words)) { // get pods before get
		if hint := WordsOfOthers[strings.Join(words[:n+1], " ")]; hint != "" {
			err.Next = hint
		}
	}
	return err
}
