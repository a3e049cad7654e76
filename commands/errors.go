package commands

import (
	"errors"
	"fmt"
	"strings"

	"github.com/crishim/crishim/output"
)

// usageError is a mistake in the command line, found before anything is
// dialled.
type usageError struct {
	text           string
	usage          string // the one-line usage of the verb
	hint           string
	unknownCommand bool
	noArguments    bool
	wrongCount     bool // there are arguments, too few or too many
}

func (e *usageError) Error() string { return e.text }

// Hint is the next step, if one is known.
func (e *usageError) Hint() string { return e.hint }

// usagef makes a usage error; the verb's usage line is added on the way out.
func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// hinted is an error with a next step.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// Hint is the next step.
func (e *hinted) Hint() string { return e.hint }

// withHint adds a next step to an error, one line whatever names are in it.
func withHint(err error, format string, args ...any) error {
	return &hinted{error: err, hint: output.Sanitize(fmt.Sprintf(format, args...))}
}

// statusError is a command that could not be run in the container, with the
// status a shell would give: 126 or 127.
type statusError struct {
	code  int
	cause error
}

func (e *statusError) Error() string { return e.cause.Error() }

func (e *statusError) Unwrap() error { return e.cause }

// failures takes an error of errors.Join apart. An error that wraps several
// others in a sentence of its own stays whole.
func failures(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	var texts []string
	for _, one := range joined.Unwrap() {
		all = append(all, failures(one)...)
		texts = append(texts, one.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return all
}

// each tries every argument and keeps all failures, one line each.
func each(args []string, do func(arg string) error) error {
	var errs []error
	for _, arg := range args {
		if err := do(arg); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// join is errors.Join that leaves a single error as it is.
func join(errs ...error) error {
	joined := errors.Join(errs...)
	if joined == nil {
		return nil
	}
	if all := failures(joined); len(all) == 1 {
		return all[0]
	}
	return joined
}
