package argv

import (
	"cmp"
	"errors"
	"strings"

	"github.com/crishim/crishim/client/suggest"
)

// arranger sorts the words of a command line into flags and arguments.
type arranger struct {
	verb                 string
	global, local        Flags
	globals, flags, rest []string
	// compat selects crictl's rules: no forms of docker or kubectl, no flags after the target, and -n means --last. Flags
	// that only crishim has are still accepted.
	compat bool
	files  Files
}

// flag parses the flag at the start of args: a flag of the verb, or the long form of a global flag.
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
	name := FlagName(args[0])
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
	for _, table := range []Flags{a.local, a.global} {
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
		if hint := cmp.Or(FlagHints[a.verb+" "+name], FlagHints[name]); hint != "" && a.verb != "" {
			usage.Next, usage.otherFlag = strings.ReplaceAll(hint, "VERB", a.verb), true
			break
		}
	}
	usage.Next = cmp.Or(usage.Next, FlagHints[a.verb+" *"])
	return usage
}
