// Package argv puts the words of a command line into the order that urfave parses. It needs tables of all flags, because
// users may write flags after arguments, and global flags after the verb. The package reads no streams, files or
// environment variables. The [Files] function of the caller looks up files.
package argv

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/crishim/crishim/client/suggest"
)

// Arrange orders the words of a command line of program. args[0] is the program's name.
func Arrange(program *Program, args []string, files Files) (Line, error) {
	a := &arranger{global: program.Flags, files: files, compat: len(args) > 0 && filepath.Base(args[0]) == "crictl"}
	tail, err := a.globalPart(args)
	a.compat = a.compat || slices.Contains(a.globals, "--compat=crictl")
	line := Line{Compat: a.compat, files: files}
	if err != nil {
		return line, behindVerb(program, args, err)
	}
	if givenFlags(a.globals)["version"] {
		return Line{Version: true}, nil
	}
	switch {
	case len(tail) == 0, givenFlags(a.globals)["help"]:
		line.Help = true
		return line, nil
	case tail[0] == "help" || tail[0] == "h":
		line.Help = true
		return line, line.helpOn(program, tail[1:])
	}
	command := program.Verb(tail[0])
	if command == nil {
		return line, unknownCommand(program, tail)
	}
	line.Verb, line.Path = command.Names[0], []string{command.Names[0]}
	globals := a.globals
	for tail = tail[1:]; len(tail) > 0 && command.command(tail[0]) != nil; tail = tail[1:] {
		command = command.command(tail[0])
		line.Path = append(line.Path, command.Names[0])
	}
	a.globals, a.verb, a.local = nil, line.Verb, command.Flags
	switch {
	case !a.compat:
		for _, name := range impliedFlags[line.Verb] {
			if !a.local.has(name) {
				a.local[name] = Flag{}
			}
		}
	case a.local.has("last"):
		a.local["n"] = a.local["last"]
	}
	err = a.verbPart(tail)
	line.Compat = line.Compat || slices.Contains(a.globals, "--compat=crictl")
	line.Given, line.Rest = givenFlags(a.flags), a.rest
	if line.Given["help"] && err == nil {
		line.Help = true
		return line, nil
	}
	if err == nil {
		err = line.checkEmpty()
	}
	if err != nil {
		return line, AddUsage("crishim "+strings.Join(line.Path, " ")+" [options] "+command.ArgsUsage, err)
	}
	line.Args = slices.Concat([]string{"crishim"}, globals, a.globals, line.Path, a.flags, []string{"--"}, a.rest)
	return line, nil
}

// helpOn reads the words of "crishim help TOPIC...".
func (l *Line) helpOn(program *Program, topic []string) error {
	find := program.Verb
	for i, word := range topic {
		next := find(word)
		switch {
		case word == "--help" || word == "-h":
		case word == "all" && l.Path == nil:
			l.HelpAll = true
		case next != nil:
			find = next.command
			l.Path = append(l.Path, next.Names[0])
		case l.Path == nil:
			l.Help = false
			return unknownCommand(program, topic[i:])
		}
	}
	return nil
}

// globalPart parses the flags before the verb and returns the words after them.
func (a *arranger) globalPart(args []string) ([]string, error) {
	for args = args[min(1, len(args)):]; len(args) > 0 && IsFlag(args[0]); {
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
		if IsFlag(words[0]) && words[0] != "--" {
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

// behindVerb adds a hint to the error about an unknown global flag, if the verb after it has a flag of that name.
func behindVerb(program *Program, args []string, err error) error {
	var usage *UsageError
	if !errors.As(err, &usage) || usage.unknownFlags == nil {
		return err
	}
	for _, word := range args {
		if command := program.Verb(word); command != nil && command.Flags.has(usage.unknownFlags[0]) {
			usage.Next = fmt.Sprintf("it is a flag of %s: `crishim %[1]s %s`", word, Dashed(usage.unknownFlags[0]))
		}
	}
	return usage
}

// unknownCommand returns the error for a word that is not a verb.
func unknownCommand(program *Program, words []string) error {
	err := &UsageError{Text: "unknown command " + strconv.Quote(words[0]), Kind: NoSuchCommand, Next: "`crishim help` lists the commands"}
	if best := suggest.Closest(words[0], program.Names); best != "" {
		err.Next = "did you mean `crishim " + best + "`?"
	}
	for n := range min(2, len(words)) { // "get pods" overrides "get"
		if hint := CommandHints[strings.Join(words[:n+1], " ")]; hint != "" {
			err.Next = hint
		}
	}
	return err
}
