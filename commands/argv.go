package commands

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client/suggest"
)

// commandLine is an argv made ready for urfave, which takes no flag behind the
// first argument: global flags, the verb, its flags, "--", its arguments.
type commandLine struct {
	args    []string
	verb    string
	version bool
	compat  bool            // --compat=crictl
	sub     bool            // the verb is followed by a verb of its own
	seen    map[string]bool // flags of the verb, by their first name
	rest    []string        // the verb's arguments
}

// passesStatus says that the status of this command line is that of a command
// in a container, so that crishim's own failures need another one.
func (l commandLine) passesStatus() bool {
	if l.sub {
		return false
	}
	switch l.verb {
	case "exec", "debug":
		return !l.seen["help"]
	case "run":
		return !l.seen["help"] && !l.seen["detach"] && !isCrictlRun(l.seen, l.rest)
	}
	return false
}

// checkEmpty refuses an argument that is empty, as "$ID" is in a script where
// there is nothing. What a command in a container gets may be.
func (l commandLine) checkEmpty() error {
	names := l.rest
	switch l.verb {
	case "exec", "debug", "run", "config":
		names = names[:min(1, len(names))]
	}
	if slices.Contains(names, "") {
		return usagef("%s: an argument is empty", l.verb)
	}
	return nil
}

// arranger walks an argv once.
type arranger struct {
	global, local        flagTable
	globals, flags, rest []string
	seen                 map[string]bool
	globalForms, forms   forms
}

// forms are the names by which flags came first. urfave refuses -a and --all on
// one line, which nobody else does.
type forms map[string]string

// same calls each flag as it was called the first time.
func (f forms) same(words []string, infos []flagInfo) []string {
	for i, word := range words {
		name, value, hasValue := strings.Cut(word, "=")
		first, again := f[infos[i].name]
		switch {
		case !again:
			f[infos[i].name] = name
		case hasValue:
			words[i] = first + "=" + value
		default:
			words[i] = first
		}
	}
	return words
}

// arrange puts flags that stand behind arguments, and global flags that stand
// behind the verb, where urfave wants them.
func arrange(app *cli.App, args []string) (commandLine, error) {
	a := &arranger{global: tableOf(app.Flags), seen: map[string]bool{}, globalForms: forms{}, forms: forms{}}
	tail, err := a.globalPart(args)
	compat := slices.Contains(a.globals, "--compat=crictl")
	if err != nil {
		return commandLine{compat: compat}, err
	}
	if a.seen["version"] {
		return commandLine{version: true}, nil
	}
	head := append([]string{"crishim"}, a.globals...)
	if len(tail) > 0 && (tail[0] == "help" || tail[0] == "h") {
		return helpLine(app, head, tail[1:])
	}
	if len(tail) == 0 {
		return commandLine{args: head}, nil
	}
	command := app.Command(tail[0])
	if command == nil {
		return commandLine{compat: compat}, unknownCommand(app, tail[0])
	}
	path := []string{command.Name}
	tail = tail[1:]
	line := commandLine{verb: command.Name, compat: compat}
	for len(tail) > 0 && command.Command(tail[0]) != nil {
		command = command.Command(tail[0])
		path = append(path, command.Name)
		tail = tail[1:]
	}
	line.sub = len(path) > 1
	a.seen, a.globals = map[string]bool{}, nil
	a.local = tableOf(command.Flags)
	err = a.verbPart(line.verb, tail)
	line.compat = line.compat || slices.Contains(a.globals, "--compat=crictl")
	line.seen, line.rest = a.seen, a.rest
	if err == nil {
		err = line.checkEmpty()
	}
	if err != nil {
		return line, addUsage("crishim "+strings.Join(path, " ")+" [options] "+command.ArgsUsage, err)
	}
	line.args = append(append(append(head, a.globals...), path...), a.flags...)
	line.args = append(append(line.args, "--"), a.rest...)
	return line, nil
}

func helpLine(app *cli.App, head, topic []string) (commandLine, error) {
	topic = slices.DeleteFunc(slices.Clone(topic), func(word string) bool { return word == "--help" || word == "-h" })
	if len(topic) == 0 {
		return commandLine{args: append(head, "--help")}, nil
	}
	if app.Command(topic[0]) == nil {
		return commandLine{}, unknownCommand(app, topic[0])
	}
	return commandLine{args: append(append(head, topic...), "--help")}, nil
}

func unknownCommand(app *cli.App, name string) error {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Names()...)
	}
	err := &usageError{text: "unknown command " + quote(name), unknownCommand: true, hint: "crishim help lists the commands"}
	if best := suggest.Closest(name, names); best != "" {
		err.hint = "did you mean crishim " + best + "?"
	}
	if hint := wordsOfOthers[name]; hint != "" {
		err.hint = hint
	}
	return err
}

// wordsOfOthers are the commands of docker, kubectl and a shell that people
// have in their fingers, and what does the same here.
var wordsOfOthers = map[string]string{
	"ls":        "crishim ps lists containers, crishim pods and crishim images the rest",
	"list":      "crishim ps lists containers, crishim pods and crishim images the rest",
	"get":       "crishim ps lists containers, crishim pods and crishim images the rest",
	"docker":    "crishim has docker's verbs without the word: crishim ps, crishim exec, crishim logs",
	"container": "crishim has docker's verbs without the word: crishim ps, crishim inspect, crishim rm",
	"kill":      "crishim stop -t 0 ends a container without a grace period",
	"top":       "crishim stats -w goes on showing what containers use, crishim exec CONTAINER ps their processes",
	"restart":   "a container that has ended is not started again: crishim sync keeps pods running, crishim run makes a new one",
	"sh":        "crishim exec -it CONTAINER sh opens a shell, crishim debug brings one along",
	"shell":     "crishim exec -it CONTAINER sh opens a shell, crishim debug brings one along",
	"bash":      "crishim exec -it CONTAINER bash opens a shell, crishim debug brings one along",
	"prune":     "crishim rmi --prune removes unused images, crishim gc dead containers and pods",
	"login":     "crishim reads what docker login or podman login has written; crishim pull --username asks for a password",
}

// globalPart takes the flags before the verb and returns what follows them.
func (a *arranger) globalPart(args []string) ([]string, error) {
	i := 1
	for i < len(args) {
		arg := args[i]
		if arg == "--" {
			return args[i+1:], nil
		}
		if !looksLikeFlag(arg) {
			break
		}
		words, infos, used, err := a.global.take(args[i:])
		if err != nil {
			return nil, err
		}
		a.note(infos)
		a.globals = append(a.globals, a.globalForms.same(words, infos)...)
		i += used
	}
	if i >= len(args) {
		return nil, nil
	}
	return args[i:], nil
}

// verbPart sorts what stands behind the verb.
func (a *arranger) verbPart(verb string, args []string) error {
	for i := 0; i < len(args); {
		arg := args[i]
		if arg == "--" {
			a.rest = append(a.rest, args[i+1:]...)
			return nil
		}
		if !looksLikeFlag(arg) {
			a.rest = append(a.rest, arg)
			i++
			if a.stopsHere(verb, args[i:]) {
				a.rest = append(a.rest, args[i:]...)
				return nil
			}
			continue
		}
		used, err := a.takeFlag(args[i:])
		if err != nil {
			return err
		}
		i += used
	}
	return nil
}

// takeFlag takes a flag of the verb, or a global one in its long form.
func (a *arranger) takeFlag(args []string) (int, error) {
	words, infos, used, err := a.local.take(args)
	if err == nil {
		a.note(infos)
		a.flags = append(a.flags, a.forms.same(words, infos)...)
		return used, nil
	}
	if strings.HasPrefix(args[0], "--") && a.global.has(flagName(args[0])) && !a.local.has(flagName(args[0])) {
		words, infos, used, err = a.global.take(args)
		if err == nil {
			a.globals = append(a.globals, a.globalForms.same(words, infos)...)
		}
		return used, err
	}
	return 0, err
}

func (a *arranger) note(infos []flagInfo) {
	for _, info := range infos {
		a.seen[info.name] = true
	}
}

// stopsHere says that all behind the arguments so far belongs to a command
// that runs in a container.
func (a *arranger) stopsHere(verb string, behind []string) bool {
	switch verb {
	case "exec", "debug":
		return true
	case "run":
		return a.seen["image"] || !isConfigFile(a.rest[0]) && !(isFile(a.rest[0]) && slices.ContainsFunc(behind, isFile))
	}
	return false
}
