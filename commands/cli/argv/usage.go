package argv

import (
	"errors"
	"fmt"
	"strings"
)

// UsageError is a mistake in the command line. Except for NothingFound, it is found before crishim connects to a runtime.
type UsageError struct {
	Text         string
	Next         string // the next step, if one is known
	Kind         UsageKind
	Usage        string   // the one-line usage of the verb
	Crictl       string   // crictl's text of an error in a flag
	Names        []string // name and aliases of the flag in Crictl
	unknownFlags []string // possible names of an unknown flag: for -xyz, "xyz" and the first unknown letter
	otherFlag    bool     // the unknown flag is docker's or kubectl's
}

// UsageKind is the kind of a mistake that crictl answers in its own way.
type UsageKind int

const (
	_             UsageKind = iota // any other mistake
	NoArguments                    // arguments are required
	WrongCount                     // too few or too many arguments
	UnknownFormat                  // the value of --output is unknown
	NothingFound                   // with --compat=crictl: an inspect command finds nothing
	NoSuchCommand
)

func (e *UsageError) Error() string { return e.Text }

// Hint returns the next step, if one is known.
func (e *UsageError) Hint() string { return e.Next }

func usagef(format string, args ...any) error { return &UsageError{Text: fmt.Sprintf(format, args...)} }

// AddUsage sets the usage line of a usage error, unless the error already has a usage line.
func AddUsage(line string, err error) error {
	var usage *UsageError
	if errors.As(err, &usage) && usage.Usage == "" {
		usage.Usage = strings.TrimSpace(line)
	}
	return err
}
