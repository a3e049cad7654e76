package argv

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/crishim/crishim/internal/shellwords"
)

// runsCommand reports whether the arguments of the verb are the command line of another program, with
// or without a target before it.
func (a *arranger) runsCommand(args []string) bool {
	switch a.verb {
	case "exec", "debug":
		return len(a.rest) == 0
	case "run":
		return len(a.rest) == 0 && (a.commandAlone() || !a.files.isConfig(args[0]) && !(a.files.has(args[0]) && slices.ContainsFunc(args[1:], a.files.has)))
	}
	return false
}

// commandAlone reports whether flags name the target, so that all arguments are the command.
func (a *arranger) commandAlone() bool {
	for name := range givenFlags(a.flags) {
		if a.verb == "run" && name == "image" || a.verb == "exec" && slices.Contains(execFilters, name) {
			return true
		}
	}
	return false
}

// execFilters are the flags of exec that choose containers instead of its first argument.
var execFilters = []string{"name", "namespace", "state", "label", "selector", "latest", "last", "pod", "image"}

// commandPart sorts the words after the target into flags of the verb and the command. After the target, flags need a
// following "--". exec and debug also accept trailing flags, because their commands never start with a dash. All words
// are the command if flags name the target, if "--" stands before the target, and with crictl's rules.
func (a *arranger) commandPart(before, behind []string, ended bool) error {
	if a.compat || a.commandAlone() || len(behind) == 0 || !IsFlag(behind[0]) || ended && behind[0] != "--" {
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
	if a.verb == "run" && a.commandAlone() { // refuses kubectl's run NAME --image IMAGE
		return &UsageError{Text: fmt.Sprintf("run: with --image all arguments are the command, and %s stands before it", strconv.Quote(target)),
			Next: fmt.Sprintf("`crishim run --name %s IMAGE` names the container", shellwords.Quote(target))}
	}
	if len(words) == 0 && a.verb == "run" {
		return a.misplaced(before, behind, nil)
	}
	a.rest = append(a.rest, words[min(1, len(words)):]...)
	return nil
}

// flagsBehind parses the flags after the target, up to "--" or the end. It returns "--" with the words after it. Any
// other word before "--" is an error.
func (a *arranger) flagsBehind(before, behind []string) (words []string, err error) {
	words = behind
	for len(words) > 0 && words[0] != "--" {
		used, err := 0, error(&UsageError{Text: a.verb + ": only flags can stand between " + strconv.Quote(a.rest[0]) + ` and "--"`})
		if IsFlag(words[0]) {
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

// misplaced returns the error for flags after the target without "--".
func (a *arranger) misplaced(before, flags, command []string) error {
	line := func(parts ...[]string) string {
		return "`crishim " + a.verb + " " + shellwords.Quote(slices.Concat(parts...)...) + "`"
	}
	target := a.rest[:1]
	other := line(before, target, []string{"--"}, flags, command)
	err := &UsageError{Text: fmt.Sprintf("%s: %s stands behind %s, where the command begins", a.verb, strconv.Quote(slices.Concat(flags, command)[0]), strconv.Quote(target[0]))}
	if len(flags) == 0 {
		err.Next = "`--` comes before a command that begins with a dash: " + other
	} else {
		err.Next = line(before, flags, target, command) + ", or " + other + " if it is the command's"
	}
	return err
}
