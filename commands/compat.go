package commands

import (
	"errors"
	"slices"
)

// helpVerbs are the verbs for which crictl takes no arguments as a question.
var helpVerbs = []string{"create", "exec", "port-forward", "rm", "rmi", "rmp", "run", "runp", "stopp", "update-runtime-config"}

// heedlessVerbs are the verbs that in crictl take no notice of arguments. A page
// of help is not what their users look for there.
var heedlessVerbs = []string{"imagefsinfo", "pods", "runtime-config"}

// helpsInstead says that crictl would show a verb's help and succeed where
// crishim finds an argument missing, or one too many. Scripts pin that.
func helpsInstead(line commandLine, err error) bool {
	var usage *usageError
	if !errors.As(err, &usage) || slices.Contains(heedlessVerbs, line.verb) {
		return false
	}
	return usage.wrongCount || usage.noArguments && slices.Contains(helpVerbs, line.verb)
}
