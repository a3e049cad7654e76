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
	Crictl       string   // a mistake in a flag as crictl words it
	Names        []string // of that flag
	unknownFlags []string // the names that an unknown flag may have
	otherFlag    bool     // it is docker's or kubectl's
}

// UsageKind is the kind of a mistake that crictl answers in its own way.
type UsageKind int

const (
	_             UsageKind = iota // any other
	NoArguments                    // some are needed
	WrongCount                     // too few or too many arguments
	UnknownFormat                  // --output
	NothingFound                   // a filter matches nothing
	NoSuchCommand
)

func (e *UsageError) Error() string { return e.Text }

// Hint returns the next step, if one is known.
func (e *UsageError) Hint() string { return e.Next }

func usagef(format string, args ...any) error { return &UsageError{Text: fmt.Sprintf(format, args...)} }

// AddUsage gives a usage error the usage line of its verb.
func AddUsage(line string, err error) error {
	var usage *UsageError
	if errors.As(err, &usage) && usage.Usage == "" {
		usage.Usage = strings.TrimSpace(line)
	}
	return err
}
