package cli

import (
	"slices"
	"strings"

	"github.com/crishim/crishim/commands/cli/argv"
)

// This file has crictl's texts, which are used under the name crictl and with --compat=crictl. crictl's end-to-end
// suite checks them.

// crictlSummary is the one-line description of the program in crictl's help.
const crictlSummary = "client for CRI"

// crictlSummaries are the one-line descriptions of the verbs in crictl's help.
var crictlSummaries = map[string]string{
	"attach":                "Attach to a running container",
	"checkpoint":            "Checkpoint one or more running containers",
	"completion":            "Output shell completion code",
	"config":                "Get, set and list crictl configuration options",
	"create":                "Create a new container",
	"events":                "Stream the events of containers",
	"exec":                  "Run a command in a running container",
	"imagefsinfo":           "Return image filesystem info",
	"images":                "List images",
	"info":                  "Display information of the container runtime",
	"inspect":               "Display the status of one or more containers",
	"inspecti":              "Return the status of one or more images",
	"inspectp":              "Display the status of one or more pods",
	"logs":                  "Fetch the logs of a container",
	"metricdescs":           "List metric descriptors",
	"metricsp":              "List pod metrics",
	"pods":                  "List pods",
	"port-forward":          "Forward local port to a pod",
	"ps":                    "List containers",
	"pull":                  "Pull an image from a registry",
	"rm":                    "Remove one or more containers",
	"rmi":                   "Remove one or more images",
	"rmp":                   "Remove one or more pods",
	"run":                   "Run a new container inside a sandbox",
	"runp":                  "Run a new pod",
	"runtime-config":        "Retrieve the container runtime configuration",
	"start":                 "Start one or more created containers",
	"stats":                 "List container(s) resource usage statistics",
	"statsp":                "List pod statistics",
	"stop":                  "Stop one or more running containers",
	"stopp":                 "Stop one or more running pods",
	"update":                "Update one or more running containers",
	"update-runtime-config": "Update the runtime configuration",
	"version":               "Display runtime version information",
}

// dropIgnored drops the arguments that crictl ignores.
func dropIgnored(l *argv.Line) {
	switch l.Verb {
	case "imagefsinfo", "pods", "runtime-config":
		l.Args, l.Rest = l.Args[:max(0, len(l.Args)-len(l.Rest))], nil
	}
}

// helpsInstead reports whether crictl shows a verb's help and succeeds, but crishim fails.
func helpsInstead(verb string, kind argv.UsageKind) bool {
	switch kind {
	case argv.WrongCount, argv.NothingFound:
		return true
	case argv.UnknownFormat:
		return verb == "metricdescs"
	case argv.NoArguments:
		return slices.Contains([]string{"config", "create", "exec", "port-forward", "rm", "rmi", "rmp", "run", "runp", "stopp", "update-runtime-config"}, verb)
	}
	return false
}

// asTyped returns urfave's error about a flag. It replaces the flag's primary name with the name that the user typed.
func asTyped(e *UsageError, args []string) string {
	for _, arg := range args {
		if argv.IsFlag(arg) && slices.Contains(e.Names, argv.FlagName(arg)) {
			return strings.Replace(e.Crictl, " for flag -"+e.Names[0]+":", " for flag -"+argv.FlagName(arg)+":", 1)
		}
	}
	return e.Crictl
}
