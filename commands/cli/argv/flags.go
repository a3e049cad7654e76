package argv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Flag is a flag of the program or of a command.
type Flag struct {
	Name     string // first name; "" for a flag without effect
	Value    bool   // takes a value
	Optional bool   // takes a value only after =
}

// Flags maps each name of a flag to the flag.
type Flags map[string]Flag

func (t Flags) has(name string) bool {
	_, ok := t[name]
	return ok
}

// assignment parses docker's and kubectl's -l KEY=VALUE and -e NAME=VALUE for verbs for which crictl has the letter as
// another flag without a value. It returns the flag in its long form.
func (t Flags) assignment(args []string) (flag string, used int) {
	letter := args[0][1:2]
	long := sharedLetters[letter]
	if !t.has(long) || !t.has(letter) || t[letter].Name == long || len(FlagName(args[0])) > 1 && t.has(FlagName(args[0])) {
		return "", 0
	}
	value, used := strings.TrimPrefix(args[0][2:], "="), 1
	if value == "" && len(args) > 1 {
		value, used = args[1], 2
	}
	if IsFlag(value) || strings.IndexByte(value, '=') < 1 {
		return "", 0
	}
	return "--" + long + "=" + value, used
}

// take parses the flag at the start of args. It returns the flag, or the flags of a group such as -it, in their long
// form, and the number of args used.
func (t Flags) take(args []string) (flags []string, used int, err error) {
	name, value, hasValue := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	info, known := t[name]
	switch {
	case !known && !strings.HasPrefix(args[0], "--") && !hasValue:
		return t.takeGroup(args)
	case !known:
		return nil, 0, unknownFlag(args[0], name)
	case info.Name == "":
		return nil, 1, nil
	case hasValue && !info.Value && !info.Optional:
		if _, err := strconv.ParseBool(value); err != nil {
			return nil, 0, usagef("flag %s takes no value", Dashed(name))
		}
		fallthrough
	case hasValue:
		return []string{"--" + info.Name + "=" + value}, 1, nil
	case !info.Value:
		return []string{"--" + info.Name}, 1, nil
	case len(args) < 2:
		return nil, 0, &UsageError{Text: fmt.Sprintf("flag %s needs a value", Dashed(name)), Crictl: "flag needs an argument: -" + name}
	}
	return []string{"--" + info.Name + "=" + args[1]}, 2, nil
}

func (t Flags) takeGroup(args []string) (flags []string, used int, err error) {
	letters := args[0][1:]
	for i, letter := range letters {
		name := string(letter)
		info, known := t[name]
		rest := letters[i+len(name):]
		switch {
		case !known:
			return nil, 0, unknownFlag(args[0], letters, name)
		case info.Name == "":
		case !info.Value:
			flags = append(flags, "--"+info.Name)
		case rest != "":
			return append(flags, "--"+info.Name+"="+rest), 1, nil
		case len(args) < 2:
			return nil, 0, usagef("flag -%s needs a value", name)
		default:
			return append(flags, "--"+info.Name+"="+args[1]), 2, nil
		}
	}
	return flags, 1, nil
}

func unknownFlag(arg string, names ...string) error {
	return &UsageError{Text: fmt.Sprintf("unknown flag %s", strconv.Quote(arg)), Crictl: "flag provided but not defined: -" + FlagName(arg), unknownFlags: names}
}

// givenFlags returns the set of the names in flags, without dashes and values.
func givenFlags(flags []string) map[string]bool {
	names := map[string]bool{}
	for _, flag := range flags {
		names[FlagName(flag)] = true
	}
	return names
}

// IsFlag reports whether a word is a flag, or "--".
func IsFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// FlagName returns the name of a flag, without its dashes and its value.
func FlagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// Dashed returns a flag as it is typed: -x or --name.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// Program is the program with its global flags.
type Program struct {
	Flags Flags
	Names []string                   // names and aliases of all verbs
	Verb  func(name string) *Command // returns nil for an unknown name
}

// Command is a verb, or a subcommand of a verb.
type Command struct {
	Names     []string // the name and its aliases; Line.Args has the name
	ArgsUsage string
	Flags     Flags
	Commands  []*Command
}

func (c *Command) command(name string) *Command {
	if i := slices.IndexFunc(c.Commands, func(sub *Command) bool { return slices.Contains(sub.Names, name) }); i >= 0 {
		return c.Commands[i]
	}
	return nil
}
