package argv

import (
	"path"
	"slices"
	"strings"
)

// Line is a parsed command line. Args has the words in the order that urfave parses: global flags, the verb, its flags,
// "--", its arguments. All flags are in their long form.
type Line struct {
	Args    []string
	Verb    string
	Path    []string        // the verb and its subcommands; for "help PATH", the words of PATH
	Rest    []string        // the arguments of the verb
	Given   map[string]bool // flags of the verb
	Version bool            // print the program's version
	Help    bool            // print the help page of Path
	HelpAll bool            // print help on all commands
	Compat  bool            // --compat=crictl is given, or the program is called crictl
	files   Files
}

// PassesStatus reports whether the exit status belongs to a command in a container. Failures of crishim then have a
// distinct status.
func (l Line) PassesStatus() bool {
	if len(l.Path) > 1 || l.Given["help"] {
		return false
	}
	switch l.Verb {
	case "exec", "debug":
		return true
	case "run":
		return !l.Given["detach"] && !l.IsCrictlRun()
	}
	return false
}

// checkEmpty refuses an empty argument, such as "$ID" of an unset variable. Arguments of a command in a
// container and the value in "config KEY VALUE" may be empty.
func (l Line) checkEmpty() error {
	names := l.Rest
	switch l.Verb {
	case "exec", "debug", "run", "config":
		names = names[:min(1, len(names))]
	}
	if slices.Contains(names, "") {
		return usagef("%s: an argument is empty", l.Verb)
	}
	return nil
}

// runImageFlags are the flags of run that are valid only with IMAGE [COMMAND].
var runImageFlags = []string{
	"image", "name", "pod", "env", "volume", "publish", "network", "workdir", "entrypoint", "hostname", "label",
	"privileged", "read-only", "cap-add", "cap-drop", "memory", "cpus", "rm", "detach",
}

// Files reports whether a path is a file.
type Files func(path string) bool

// IsCrictlRun reports whether run has crictl's form, CONTAINER-CONFIG POD-CONFIG. In this form the arguments are two files,
// or a single file that its path or extension identifies as a file, and no flag is in runImageFlags.
func (l Line) IsCrictlRun() bool {
	if slices.ContainsFunc(runImageFlags, func(name string) bool { return l.Given[name] }) {
		return false
	}
	switch len(l.Rest) {
	case 1:
		return l.files.isConfig(l.Rest[0])
	case 2:
		return l.files.has(l.Rest[0]) && l.files.has(l.Rest[1])
	}
	return false
}

func (f Files) isConfig(arg string) bool {
	switch path.Ext(arg) {
	case ".json", ".yaml", ".yml":
		return f.has(arg)
	}
	return isPath(arg) || strings.HasPrefix(arg, "/")
}

// has reports whether an argument is an existing file, "-" for standard input, or begins with ./ or ../.
func (f Files) has(arg string) bool { return isPath(arg) || f(arg) }

func isPath(arg string) bool {
	return arg == "-" || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../")
}
