package cli

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/crishim/crishim/client/suggest"
	urfave "github.com/urfave/cli/v2"
)

// commandLine is an argv made ready for urfave, which takes no flag behind the
// first argument and no flag under two of its names: global flags, the verb, its
// flags, all in their long form, "--", its arguments.
type commandLine struct {
	Args    []string
	Verb    string
	Version bool
	compat  bool            // --compat=crictl
	sub     bool            // the verb is followed by a verb of its own
	seen    map[string]bool // flags of the verb
	rest    []string        // the verb's arguments
	help    *Help           // the page to show instead of anything else
	page    *Help           // the verb's own
}

// PassesStatus reports whether the status of this command line is that of a command
// in a container, so that crishim's own failures need another one.
func (l commandLine) PassesStatus() bool {
	if l.sub || l.seen["help"] {
		return false
	}
	switch l.Verb {
	case "exec", "debug":
		return true
	case "run":
		return !l.seen["detach"] && !IsCrictlRun(l.seen, l.rest)
	}
	return false
}

// helpsInstead reports whether crictl would show a verb's help and succeed where
// crishim finds an argument missing, or one too many. Scripts pin that.
func (l commandLine) helpsInstead(err error) bool {
	var usage *UsageError
	if !errors.As(err, &usage) {
		return false
	}
	switch l.Verb {
	case "imagefsinfo", "pods", "runtime-config": // which take no notice of arguments in crictl
		return false
	case "metricdescs":
		return usage.wrongCount || usage.unknownFormat
	case "config", "create", "exec", "port-forward", "rm", "rmi", "rmp", "run", "runp", "stopp", "update-runtime-config":
		return usage.wrongCount || usage.NoArguments
	}
	return usage.wrongCount
}

// dropIgnored drops the arguments that crictl takes no notice of.
func (l *commandLine) dropIgnored() {
	switch l.Verb {
	case "imagefsinfo", "pods", "runtime-config":
		l.Args, l.rest = l.Args[:max(0, len(l.Args)-len(l.rest))], nil
	}
}

// checkEmpty refuses an argument that is empty, as "$ID" is in a script where
// there is nothing. What a command in a container gets may be.
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

// arranger walks an argv once.
type arranger struct {
	global, local        flagTable
	globals, flags, rest []string
}

// Arrange puts flags that stand behind arguments, and global flags that stand
// behind the verb, where urfave wants them.
func Arrange(app *urfave.App, args []string) (commandLine, error) {
	a := &arranger{global: tableOf(app.Flags)}
	tail, err := a.globalPart(args)
	line := commandLine{compat: slices.Contains(a.globals, "--compat=crictl"), page: &Help{app: app}}
	if err != nil {
		return line, err
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
	head := append([]string{"crishim"}, a.globals...)
	command := app.Command(tail[0])
	if command == nil {
		return line, unknownCommand(app, tail[0])
	}
	line.Verb, head = command.Name, append(head, command.Name)
	for tail = tail[1:]; len(tail) > 0 && command.Command(tail[0]) != nil; tail = tail[1:] {
		command, line.sub = command.Command(tail[0]), true
		head = append(head, command.Name)
	}
	verb := head[1+len(a.globals):]
	head = head[:1+len(a.globals)]
	a.globals, a.local = nil, tableOf(command.Flags)
	err = a.verbPart(line.Verb, tail)
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
		return line, AddUsage("crishim "+strings.Join(verb, " ")+" [options] "+command.ArgsUsage, err)
	}
	line.Args = slices.Concat(head, a.globals, verb, a.flags, []string{"--"}, a.rest)
	return line, nil
}

// globalPart takes the flags before the verb and returns what follows them.
func (a *arranger) globalPart(args []string) ([]string, error) {
	for args = args[min(1, len(args)):]; len(args) > 0 && looksLikeFlag(args[0]); {
		if args[0] == "--" {
			return args[1:], nil
		}
		flags, used, err := a.global.take(args)
		if err != nil {
			return nil, err
		}
		a.globals = append(a.globals, flags...)
		args = args[used:]
	}
	return args, nil
}

// verbPart sorts what stands behind the verb.
func (a *arranger) verbPart(verb string, args []string) error {
	for len(args) > 0 {
		switch {
		case args[0] == "--":
			a.rest = append(a.rest, args[1:]...)
			return nil
		case !looksLikeFlag(args[0]):
			a.rest = append(a.rest, args[0])
			args = args[1:]
			if a.stopsHere(verb, args) {
				a.rest = append(a.rest, args...)
				return nil
			}
			continue
		}
		flags, used, err := a.local.take(args)
		if err == nil {
			a.flags = append(a.flags, flags...)
		} else { // it may be a global one in its long form
			name := flagName(args[0])
			if !strings.HasPrefix(args[0], "--") || a.local.has(name) || !a.global.has(name) {
				return err
			}
			if flags, used, err = a.global.take(args); err != nil {
				return err
			}
			a.globals = append(a.globals, flags...)
		}
		args = args[used:]
	}
	return nil
}

// stopsHere reports whether all behind the arguments so far belongs to a command
// that runs in a container.
func (a *arranger) stopsHere(verb string, behind []string) bool {
	switch verb {
	case "exec", "debug":
		return true
	case "run":
		return givenFlags(a.flags)["image"] || !isConfigFile(a.rest[0]) && !(isFile(a.rest[0]) && slices.ContainsFunc(behind, isFile))
	}
	return false
}

// flagInfo is what arranging needs to know of a flag.
type flagInfo struct {
	name     string // its first name
	value    bool   // takes a value
	optional bool   // takes one behind = only
}

// flagTable finds flags by any of their names.
type flagTable map[string]flagInfo

func tableOf(flags []urfave.Flag) flagTable {
	help := flagInfo{name: "help"}
	table := flagTable{"help": help, "h": help}
	for _, flag := range flags {
		_, boolean := flag.(*urfave.BoolFlag)
		_, optional := flag.(WaitFlag)
		for _, name := range flag.Names() {
			table[name] = flagInfo{name: flag.Names()[0], value: !boolean && !optional, optional: optional}
		}
	}
	return table
}

func (t flagTable) has(name string) bool {
	_, ok := t[name]
	return ok
}

// take reads the flag that args begin with and returns it in its long form, with how many
// of args it used. A group of short flags (-it, -n5) is several.
func (t flagTable) take(args []string) (flags []string, used int, err error) {
	name, value, hasValue := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	info, known := t[name]
	switch {
	case !known && !strings.HasPrefix(args[0], "--") && !hasValue:
		return t.takeGroup(args)
	case !known:
		return nil, 0, t.unknown(args[0])
	case hasValue && !info.value && !info.optional:
		if _, err := strconv.ParseBool(value); err != nil {
			return nil, 0, Usagef("flag %s takes no value", Dashed(name))
		}
		fallthrough
	case hasValue:
		return []string{"--" + info.name + "=" + value}, 1, nil
	case !info.value:
		return []string{"--" + info.name}, 1, nil
	case len(args) < 2:
		return nil, 0, &UsageError{Text: fmt.Sprintf("flag %s needs a value", Dashed(name)), flag: "flag needs an argument: -" + name}
	}
	return []string{"--" + info.name + "=" + args[1]}, 2, nil
}

func (t flagTable) takeGroup(args []string) (flags []string, used int, err error) {
	letters := args[0][1:]
	for i, letter := range letters {
		name := string(letter)
		info, known := t[name]
		rest := letters[i+len(name):]
		switch {
		case !known:
			return nil, 0, t.unknown(args[0])
		case !info.value:
			flags = append(flags, "--"+info.name)
		case rest != "":
			return append(flags, "--"+info.name+"="+rest), 1, nil
		case len(args) < 2:
			return nil, 0, Usagef("flag -%s needs a value", name)
		default:
			return append(flags, "--"+info.name+"="+args[1]), 2, nil
		}
	}
	return flags, 1, nil
}

func (t flagTable) unknown(arg string) error {
	err := &UsageError{Text: fmt.Sprintf("unknown flag %s", Quote(arg)), flag: "flag provided but not defined: -" + flagName(arg)}
	var names []string
	for name := range t {
		if len(name) > 1 {
			names = append(names, name)
		}
	}
	if best := suggest.Closest(flagName(arg), names); best != "" {
		err.Next = "did you mean --" + best + "?"
	}
	return err
}

// givenFlags are the names of flags.
func givenFlags(flags []string) map[string]bool {
	names := map[string]bool{}
	for _, flag := range flags {
		names[flagName(flag)] = true
	}
	return names
}

func looksLikeFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// Dashed is a flag as it is typed: -x or --name.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// helpOn is the page that "crishim help TOPIC..." asks for.
func helpOn(app *urfave.App, topic []string) (*Help, error) {
	page := &Help{app: app}
	for _, word := range topic {
		next := app.Command(word)
		if page.command != nil {
			next = page.command.Command(word)
		}
		switch {
		case word == "--help" || word == "-h":
		case word == "all" && page.command == nil:
			page.all = true
		case next != nil:
			page.command, page.name = next, strings.TrimSpace(page.name+" "+next.Name)
		case page.command == nil:
			return nil, unknownCommand(app, word)
		}
	}
	return page, nil
}

func unknownCommand(app *urfave.App, name string) error {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Names()...)
	}
	err := &UsageError{Text: "unknown command " + Quote(name), unknownCommand: true, Next: "crishim help lists the commands"}
	if best := suggest.Closest(name, names); best != "" {
		err.Next = "did you mean crishim " + best + "?"
	}
	if hint := WordsOfOthers[name]; hint != "" {
		err.Next = hint
	}
	return err
}

// WordsOfOthers are the commands of docker, kubectl and a shell that people
// have in their fingers, and what does the same here.
var WordsOfOthers = map[string]string{
	"ls":        "crishim ps, crishim pods and crishim images list what there is",
	"list":      "crishim ps, crishim pods and crishim images list what there is",
	"get":       "crishim ps, crishim pods and crishim images list what there is",
	"docker":    "crishim has docker's verbs without the word: crishim ps, crishim exec, crishim logs",
	"container": "crishim has docker's verbs without the word: crishim ps, crishim inspect, crishim rm",
	"top":       "crishim stats -w keeps showing what containers use, crishim exec CONTAINER ps their processes",
	"sh":        "crishim exec -it CONTAINER sh opens a shell, crishim debug has one",
	"shell":     "crishim exec -it CONTAINER sh opens a shell, crishim debug has one",
	"bash":      "crishim exec -it CONTAINER bash opens a shell, crishim debug has one",
	"prune":     "crishim rmi --prune removes unused images, crishim gc dead containers and pods",
	"login":     "crishim reads what docker login or podman login has written; crishim pull --username asks for a password",
}

// runImageFlags are the flags of run that only go with IMAGE [COMMAND].
var runImageFlags = []string{
	"image", "name", "pod", "env", "volume", "publish", "network", "workdir", "entrypoint", "hostname", "label",
	"privileged", "read-only", "cap-add", "cap-drop", "memory", "cpus", "rm", "detach",
}

// IsCrictlRun reports whether run has crictl's form, CONTAINER-CONFIG POD-CONFIG, and not
// IMAGE [COMMAND]: two arguments that are files, or one whose name is that of a file, and
// no flag of the other form.
func IsCrictlRun(seen map[string]bool, rest []string) bool {
	if slices.ContainsFunc(runImageFlags, func(name string) bool { return seen[name] }) {
		return false
	}
	switch len(rest) {
	case 1:
		return isConfigFile(rest[0])
	case 2:
		return isFile(rest[0]) && isFile(rest[1])
	}
	return false
}

// isConfigFile reports whether an argument alone can only mean a file.
func isConfigFile(arg string) bool {
	switch path.Ext(arg) {
	case ".json", ".yaml", ".yml":
		return isFile(arg)
	}
	return isPath(arg) || strings.HasPrefix(arg, "/")
}

// isFile reports whether an argument is a file: one that exists, standard input, or
// one whose path is that of a file.
func isFile(arg string) bool {
	info, err := os.Stat(arg)
	return isPath(arg) || err == nil && !info.IsDir()
}

func isPath(arg string) bool {
	return arg == "-" || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../")
}
