package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
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
	verb                 string
	global, local        flagTable
	globals, flags, rest []string
	compat               bool // crictl's own flags and forms only
}

// Arrange puts flags that stand behind arguments, and global flags that stand
// behind the verb, where urfave wants them.
func Arrange(app *urfave.App, args []string) (commandLine, error) {
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
	head := append([]string{"crishim"}, a.globals...)
	command := app.Command(tail[0])
	if command == nil {
		return line, unknownCommand(app, tail)
	}
	line.Verb, head = command.Name, append(head, command.Name)
	for tail = tail[1:]; len(tail) > 0 && command.Command(tail[0]) != nil; tail = tail[1:] {
		command, line.sub = command.Command(tail[0]), true
		head = append(head, command.Name)
	}
	verb := head[1+len(a.globals):]
	head = head[:1+len(a.globals)]
	a.globals, a.verb, a.local = nil, line.Verb, tableOf(command.Flags)
	if !a.compat {
		a.local.imply(line.Verb)
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
			return nil, a.explain(err)
		}
		a.globals = append(a.globals, flags...)
		args = args[used:]
	}
	return args, nil
}

// verbPart sorts what stands behind the verb.
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
	if flag, used := a.local.meant(args); used > 0 && !a.compat {
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

// explain adds to the error about an unknown flag what is meant by it.
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
		if a.verb == "" {
			break
		}
		if hint := cmp.Or(FlagsOfOthers[a.verb+" "+name], FlagsOfOthers[name]); hint != "" {
			usage.Next, usage.otherFlag = strings.ReplaceAll(hint, "VERB", a.verb), true
			break
		}
	}
	return usage
}

// behindVerb adds to the error about an unknown flag before the verb that it is one of the verb.
func behindVerb(app *urfave.App, args []string, err error) error {
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

// runsCommand reports whether the arguments of the verb are a target and the command line of
// another program, or that command line alone.
func (a *arranger) runsCommand(args []string) bool {
	switch a.verb {
	case "exec", "debug":
		return len(a.rest) == 0
	case "run":
		return len(a.rest) == 0 && (a.commandAlone() || !isConfigFile(args[0]) && !(isFile(args[0]) && slices.ContainsFunc(args[1:], isFile)))
	}
	return false
}

// commandAlone reports whether flags stand for the target.
func (a *arranger) commandAlone() bool {
	for name := range givenFlags(a.flags) {
		if a.verb == "run" && name == "image" || a.verb == "debug" && name == "host" || a.verb == "exec" && slices.Contains(execFilters, name) {
			return true
		}
	}
	return false
}

// execFilters are the flags of exec that choose containers instead of its first argument.
var execFilters = []string{"name", "namespace", "state", "label", "selector", "latest", "last", "pod", "image"}

// commandPart sorts what stands behind the target, in kubectl's form flags and "--" before the
// command. Flags without "--" are refused, for a command line may begin with a dash; only exec and
// debug, whose commands cannot, take them where nothing else follows.
func (a *arranger) commandPart(before, behind []string, ended bool) error {
	if a.compat || a.commandAlone() || len(behind) == 0 || !looksLikeFlag(behind[0]) || ended && behind[0] != "--" {
		if a.compat && a.verb == "exec" && len(behind) > 0 && behind[0] == "--" {
			behind = behind[1:]
		}
		a.rest = append(a.rest, behind...)
		return nil
	}
	target := a.rest[0]
	words, err := a.flagsBehind(before, behind)
	if err != nil {
		return err
	}
	if a.verb == "run" && a.commandAlone() { // kubectl's run NAME --image IMAGE
		return &UsageError{Text: fmt.Sprintf("run: with --image all arguments are the command, and %s stands before it", Quote(target)),
			Next: fmt.Sprintf("`crishim run --name %s IMAGE` names the container", bare(target))}
	}
	if len(words) == 0 && a.verb == "run" {
		return a.misplaced(before, behind, nil)
	}
	a.rest = append(a.rest, words[min(1, len(words)):]...)
	return nil
}

// flagsBehind takes the flags between the target and "--", and returns what is left.
func (a *arranger) flagsBehind(before, behind []string) (words []string, err error) {
	words = behind
	for len(words) > 0 && words[0] != "--" {
		used, err := 0, error(&UsageError{Text: a.verb + ": only flags can stand between " + Quote(a.rest[0]) + ` and "--"`})
		if looksLikeFlag(words[0]) {
			used, err = a.flag(words)
		}
		var usage *UsageError
		switch {
		case err == nil:
		case slices.Contains(words, "--") || errors.As(err, &usage) && usage.otherFlag:
			return nil, err
		default:
			return nil, a.misplaced(before, behind[:len(behind)-len(words)], words)
		}
		words = words[used:]
	}
	return words, nil
}

// misplaced is the error for flags behind the target without "--", with both ways to write it.
func (a *arranger) misplaced(before, flags, command []string) error {
	line := func(parts ...[]string) string {
		return "`crishim " + a.verb + " " + bare(slices.Concat(parts...)...) + "`"
	}
	target := a.rest[:1]
	other := line(before, target, []string{"--"}, flags, command)
	err := &UsageError{Text: fmt.Sprintf("%s: %s stands behind %s, where the command begins", a.verb, Quote(slices.Concat(flags, command)[0]), Quote(target[0]))}
	if len(flags) == 0 {
		err.Next = "`--` comes before a command that begins with a dash: " + other
	} else {
		err.Next = line(before, flags, target, command) + ", or " + other + " if it is the command's"
	}
	return err
}

// bare is words as a shell reads them.
func bare(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i], _ = bashQuote(word, 0)
	}
	return strings.Join(quoted, " ")
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

// imply adds the flags that change nothing.
func (t flagTable) imply(verb string) {
	for _, name := range impliedFlags[verb] {
		if !t.has(name) {
			t[name] = flagInfo{}
		}
	}
}

// meant reads a flag whose letter crictl has for something else, if its value is of that other
// flag, and returns that in its long form.
func (t flagTable) meant(args []string) (flag string, used int) {
	letter := args[0][1:2]
	shared := sharedLetters[letter]
	other := slices.IndexFunc(shared.flags, t.has)
	if other < 0 || !t.has(letter) || slices.Contains(shared.flags, t[letter].name) || len(flagName(args[0])) > 1 && t.has(flagName(args[0])) {
		return "", 0
	}
	value, used := strings.TrimPrefix(args[0][2:], "="), 1
	if value == "" && len(args) > 1 {
		value, used = args[1], 2
	}
	if value == "" || looksLikeFlag(value) || !shared.means(value) {
		return "", 0
	}
	return "--" + shared.flags[other] + "=" + value, used
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
		return nil, 0, unknownFlag(args[0], name)
	case info.name == "":
		return nil, 1, nil
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
			return nil, 0, unknownFlag(args[0], letters, name)
		case info.name == "":
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

func unknownFlag(arg string, names ...string) error {
	return &UsageError{Text: fmt.Sprintf("unknown flag %s", Quote(arg)), flag: "flag provided but not defined: -" + flagName(arg), unknownFlags: names}
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
	for i, word := range topic {
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
			return nil, unknownCommand(app, topic[i:])
		}
	}
	return page, nil
}

// unknownCommand is the error for what no verb is called, with what is meant where that is known.
func unknownCommand(app *urfave.App, words []string) error {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Names()...)
	}
	err := &UsageError{Text: "unknown command " + Quote(words[0]), unknownCommand: true, Next: "`crishim help` lists the commands"}
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
