package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/argv"
	urfave "github.com/urfave/cli/v2"
)

// UsageError is a mistake in the command line, found before anything is dialled.
type UsageError = argv.UsageError

// Usagef returns a usage error. The verb's usage line is added later.
func Usagef(format string, args ...any) error {
	return &UsageError{Text: fmt.Sprintf(format, args...)}
}

// isUsage reports whether an error is a mistake in the command line.
func isUsage(err error) bool {
	var usage *UsageError
	var syntax *client.SyntaxError
	return errors.As(err, &usage) || errors.As(err, &syntax)
}

// Invalid returns the error about the value of a flag.
func Invalid(flag string, value any, reason string) error {
	return Usagef("invalid --%s %s: %s", flag, Quote(fmt.Sprint(value)), reason)
}

// MustBe returns the error "must be a, b or c".
func MustBe(words ...string) error {
	last := len(words) - 1
	if last < 1 {
		return errors.New("must be " + strings.Join(words, ""))
	}
	return errors.New("must be " + strings.Join(words[:last], ", ") + " or " + words[last])
}

// ArgCount checks the number of arguments. A negative most means any number.
func ArgCount(c *urfave.Context, least, most int) error {
	n := c.Args().Len()
	wrong := func(format string, args ...any) error {
		return &UsageError{Text: fmt.Sprintf(format, args...), Kind: argv.WrongCount}
	}
	switch {
	case n < least && n == 0:
		return &UsageError{Text: c.Command.Name + " needs " + c.Command.ArgsUsage, Kind: argv.NoArguments}
	case n < least:
		return wrong("%s needs %s: only %d given", c.Command.Name, c.Command.ArgsUsage, n)
	case most == 0 && n > 0:
		return wrong("%s takes no arguments, got %s", c.Command.Name, Quote(c.Args().First()))
	case most >= 0 && n > most:
		return wrong("%s: unexpected argument %s", c.Command.Name, Quote(c.Args().Get(most)))
	}
	return nil
}

// Quote quotes user input for errors.
func Quote(s string) string { return strconv.Quote(s) }
