package argv

import (
	"errors"
	"fmt"
	"strings"
)

// UsageError is a mistake in the command line, found before anything is dialled.
type UsageError struct {
	Text         string
	Next         string // the next step, if one is known
	Kind         UsageKind
	Usage        string   // the one-line usage of the verb
	Crictl       string   // crictl's wording of a mistake in a flag
	Names        []string // all names of the flag that Crictl is about
	unknownFlags []string // the names that an unknown flag may have
	otherFlag    bool     // the unknown flag is docker's or kubectl's
}

// UsageKind is the kind of a mistake that crictl answers in its own way.
type UsageKind int

const (
	_             UsageKind = iota // any other
	NoArguments                    // arguments are required
	WrongCount                     // too few or too many arguments
	UnknownFormat                  // --output
	NothingFound                   // a filter matches nothing
	NoSuchCommand
)

func (e *UsageError) Error() string { return e.Text }

// Hint returns the next step, if one is known.
func (e *UsageError) Hint() string { return e.Next }

func usagef(format string, args ...any) error { return &UsageError{Text: fmt.Sprintf(format, args...)} }

// AddUsage sets the usage line of a usage error.
func AddUsage(line string, err error) error {
	var usage *UsageError
	if errors.As(err, &usage) && usage.Usage == "" {
		usage.Usage = strings.TrimSpace(line)
	}
	return err
}
