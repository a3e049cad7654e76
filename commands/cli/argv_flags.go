package cli

import (
	"fmt"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

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
		_, boolean := flag.(boolFlag)
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

// assignment reads -l KEY=VALUE and -e NAME=VALUE, which docker and kubectl have, where the letter is
// a flag without a value in crictl. It returns the flag in its long form.
func (t flagTable) assignment(args []string) (flag string, used int) {
	letter := args[0][1:2]
	long := sharedLetters[letter]
	if !t.has(long) || !t.has(letter) || t[letter].name == long || len(flagName(args[0])) > 1 && t.has(flagName(args[0])) {
		return "", 0
	}
	value, used := strings.TrimPrefix(args[0][2:], "="), 1
	if value == "" && len(args) > 1 {
		value, used = args[1], 2
	}
	if looksLikeFlag(value) || strings.IndexByte(value, '=') < 1 {
		return "", 0
	}
	return "--" + long + "=" + value, used
}

// take reads the flag that args begin with. It returns the flag, or those of a group such as -it, in
// their long form, and the number of args used.
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

// givenFlags returns the names of flags.
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

// Dashed returns a flag as it is typed: -x or --name.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
