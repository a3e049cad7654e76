package commands

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client/suggest"
)

// flagInfo is what arranging needs to know of a flag.
type flagInfo struct {
	name     string // its first name
	value    bool   // takes a value
	optional bool   // takes one behind = only
}

// flagTable finds flags by any of their names.
type flagTable map[string]flagInfo

func tableOf(flags []cli.Flag) flagTable {
	help := flagInfo{name: "help"}
	table := flagTable{"help": help, "h": help}
	for _, flag := range flags {
		_, boolean := flag.(*cli.BoolFlag)
		_, optional := flag.(waitFlag)
		names := flag.Names()
		for _, name := range names {
			table[name] = flagInfo{name: names[0], value: !boolean && !optional, optional: optional}
		}
	}
	return table
}

func (t flagTable) has(name string) bool {
	_, ok := t[name]
	return ok
}

// take reads the flag that args begin with. It returns it in words that
// urfave understands, and how many of args it used. A group of short flags
// (-it, -n5) is taken apart.
func (t flagTable) take(args []string) (words []string, infos []flagInfo, used int, err error) {
	name, value, hasValue := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	info, known := t[name]
	switch {
	case !known && !strings.HasPrefix(args[0], "--") && !hasValue:
		return t.takeGroup(args)
	case !known:
		return nil, nil, 0, t.unknown(args[0])
	case hasValue:
		if !info.value && !info.optional {
			if _, err := strconv.ParseBool(value); err != nil {
				return nil, nil, 0, usagef("flag %s takes no value", dashed(name))
			}
		}
		return []string{dashed(name) + "=" + value}, []flagInfo{info}, 1, nil
	case !info.value:
		return []string{dashed(name)}, []flagInfo{info}, 1, nil
	case len(args) < 2:
		return nil, nil, 0, usagef("flag %s needs a value", dashed(name))
	}
	return []string{dashed(name) + "=" + args[1]}, []flagInfo{info}, 2, nil
}

func (t flagTable) takeGroup(args []string) (words []string, infos []flagInfo, used int, err error) {
	letters := args[0][1:]
	for i, letter := range letters {
		name := string(letter)
		info, known := t[name]
		if !known {
			return nil, nil, 0, t.unknown(args[0])
		}
		infos = append(infos, info)
		if !info.value {
			words = append(words, "-"+name)
			continue
		}
		if rest := letters[i+len(name):]; rest != "" {
			return append(words, "-"+name+"="+rest), infos, 1, nil
		}
		if len(args) < 2 {
			return nil, nil, 0, usagef("flag -%s needs a value", name)
		}
		return append(words, "-"+name+"="+args[1]), infos, 2, nil
	}
	return words, infos, 1, nil
}

func (t flagTable) unknown(arg string) error {
	err := &usageError{text: fmt.Sprintf("unknown flag %s", quote(arg))}
	var names []string
	for name := range t {
		if len(name) > 1 {
			names = append(names, name)
		}
	}
	if best := suggest.Closest(flagName(arg), names); best != "" {
		err.hint = "did you mean --" + best + "?"
	}
	return err
}

func looksLikeFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// addUsage gives a usage error the usage line of its verb.
func addUsage(line string, err error) error {
	var usage *usageError
	if errors.As(err, &usage) && usage.usage == "" {
		usage.usage = strings.TrimSpace(line)
	}
	return err
}

// flagNamed finds the flag in what the flag package says of a value: it has
// one dash for every flag.
var flagNamed = regexp.MustCompile(`^(invalid (?:boolean )?value ".*" for flag )-(\w[\w-]*)`)

// flagComplaint is what urfave says of a flag's value, in our words.
func flagComplaint(err error) string {
	text := strings.TrimSuffix(err.Error(), ": parse error")
	if m := flagNamed.FindStringSubmatch(text); m != nil {
		text = m[1] + dashed(m[2]) + text[len(m[0]):]
	}
	return text
}
