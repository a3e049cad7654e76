package cli

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"
)

// A flag is bound to a field of its verb's options where it is declared, and is not read by
// name again. Words, numbers and switches are urfave's own flags; what has a small language
// of its own is a typed flag.

// urfave asks each flag for its names for each flag that it looks up, and its own flags put every name through a regular
// expression then: that was a fortieth of a short command. Ours have names of their own.

type boolFlag struct{ *urfave.BoolFlag }

func (f boolFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }
func (f boolFlag) String() string  { return urfave.FlagStringer(f) }

type stringFlag struct{ *urfave.StringFlag }

func (f stringFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }
func (f stringFlag) String() string  { return urfave.FlagStringer(f) }

func BoolFlag(to *bool, name, usage string, aliases ...string) urfave.Flag {
	return boolFlag{&urfave.BoolFlag{Name: name, Aliases: aliases, Usage: usage, Destination: to, DisableDefaultText: true}}
}

// StringFlag returns a flag that takes any text; what is in *to is its default.
func StringFlag(to *string, name, usage string, aliases ...string) urfave.Flag {
	return stringFlag{&urfave.StringFlag{Name: name, Aliases: aliases, Usage: usage, Destination: to, Value: *to}}
}

// IntFlag returns a flag that takes a whole number; what is in *to is its default. Help leaves a
// default of 0 or -1 out, which stands for none.
func IntFlag[T int | int64](to *T, name, usage string, aliases ...string) urfave.Flag {
	flag := Typed(to, func(text string) (T, error) {
		n, err := strconv.ParseInt(text, 0, 64)
		if errors.Is(err, strconv.ErrRange) {
			return 0, errors.New("is out of range")
		} else if err != nil {
			return 0, errors.New("must be a number")
		}
		return T(n), nil
	}, name, usage, aliases...)
	if *to > 0 {
		flag.DefaultText = fmt.Sprint(*to)
	}
	return flag.Number()
}

// typedFlag is a flag whose text is read when urfave comes to it: a mistake is wrong usage.
type typedFlag struct {
	*urfave.GenericFlag
	text     *flagText
	Words    []string // all that it takes, if those are few; for completions
	Repeated bool
	number   bool // for crictl, which words a mistake in one as urfave does

	placeholder string // for its value, where the usage marks no word
}

// flagText is the value that urfave sets.
type flagText struct {
	read func(string) error
	err  error
}

// Set reads the text of the flag. When a flag is given by one of its names, urfave sets the
// others to what Serialize returns.
func (t *flagText) Set(text string) error {
	if text != alreadySet {
		t.err = t.read(text)
	}
	return t.err
}

func (*flagText) String() string { return "" }

// Serialize returns what stands for the text under the flag's other names.
func (*flagText) Serialize() string { return alreadySet }

const alreadySet = "\x00already set"

// IsSliceFlag lets help show a flag that may be given several times.
func (f *typedFlag) IsSliceFlag() bool { return f.Repeated }

// values returns those that completion offers.
func (f *typedFlag) values() []string { return f.Words }

func (f *typedFlag) String() string { return urfave.FlagStringer(f) }

func (f *typedFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }

// Number marks a flag that takes a plain number in crictl.
func (f *typedFlag) Number() *typedFlag {
	f.number = true
	return f
}

// NewTyped returns a flag whose text read takes; a mistake is wrong usage.
func NewTyped(read func(string) error, name, usage string, aliases []string) *typedFlag {
	text := &flagText{read: read}
	return &typedFlag{GenericFlag: &urfave.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: text}, text: text}
}

// Typed returns a flag that parse reads.
func Typed[T any](to *T, parse func(string) (T, error), name, usage string, aliases ...string) *typedFlag {
	return NewTyped(func(text string) error {
		value, err := parse(text)
		if err == nil {
			*to = value
		}
		return err
	}, name, usage, aliases)
}

// ListFlag returns a flag that may be given several times, and adds to a list each time.
func ListFlag[T any](to *[]T, parse func(string) (T, error), name, usage string, aliases ...string) urfave.Flag {
	flag := NewTyped(func(text string) error {
		value, err := parse(text)
		if err == nil {
			*to = append(*to, value)
		}
		return err
	}, name, usage, aliases)
	flag.Repeated = true
	return flag
}

// StringsFlag returns a flag that may be given several times.
func StringsFlag(to *[]string, name, usage string, aliases ...string) urfave.Flag {
	return ListFlag(to, func(text string) (string, error) { return text, nil }, name, usage, aliases...)
}

// WordFlag returns a flag that takes one of a few words, in any case. An empty one is none, where
// none is the default.
func WordFlag(to *string, words []string, name, usage string, aliases ...string) urfave.Flag {
	optional := *to == ""
	flag := Typed(to, func(text string) (string, error) {
		word := strings.ToLower(text)
		if word == "" && optional || slices.Contains(words, word) {
			return word, nil
		}
		return "", MustBe(words...)
	}, name, usage, aliases...)
	flag.Words, flag.DefaultText = words, *to
	return flag
}

// chosen returns a flag that takes other texts too than those that are offered for completion.
func chosen(to *string, words []string, name, usage string, aliases ...string) *typedFlag {
	flag := Typed(to, func(text string) (string, error) { return text, nil }, name, usage, aliases...)
	flag.Words, flag.DefaultText = words, *to
	return flag
}

// DurationFlag returns a flag that takes 5 for five seconds as well as 5s.
func DurationFlag(to *time.Duration, name, usage string, aliases ...string) *typedFlag {
	flag := Typed(to, func(text string) (time.Duration, error) {
		value, err := parseDuration(text)
		if err == nil && value < 0 {
			err = errors.New("must not be negative")
		}
		return value, err
	}, name, usage, aliases...)
	flag.placeholder = "DURATION"
	flag.number = true
	if *to != 0 {
		flag.DefaultText = to.String()
	}
	return flag
}

// LabelsFlag returns a flag that takes KEY=VALUE, several times or separated by commas.
func LabelsFlag(to *map[string]string, name, usage string, aliases ...string) urfave.Flag {
	flag := NewTyped(func(text string) error { return addLabels(to, text) }, name, usage, aliases)
	flag.Repeated = true
	return flag
}

// addLabels reads k=v[,k=v]; a value may contain '=', and a comma that no pair follows.
func addLabels(to *map[string]string, text string) error {
	var pairs []string
	for part := range strings.SplitSeq(text, ",") {
		if !strings.Contains(part, "=") && len(pairs) > 0 {
			pairs[len(pairs)-1] += "," + part
			continue
		}
		pairs = append(pairs, part)
	}
	labels := maps.Clone(*to)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return errors.New("must be KEY=VALUE")
		}
		labels[key] = value
	}
	*to = labels
	return nil
}

func parseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(seconds) || math.Abs(seconds) > float64(math.MaxInt64/int64(time.Second)) {
			return 0, errors.New("is out of range")
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("must be a number of seconds or a duration such as 5s or 1m30s")
	}
	return value, nil
}

// Pattern is an optional regular expression, unanchored as in crictl.
type Pattern struct{ *regexp.Regexp }

func (p Pattern) matches(s string) bool { return p.Regexp == nil || p.MatchString(s) }

// ParsePattern compiles a regular expression; an empty one matches everything.
func ParsePattern(text string) (p Pattern, err error) {
	if text != "" {
		p.Regexp, err = regexp.Compile(text)
	}
	return p, err
}

// Exactly matches one text.
func Exactly(text string) Pattern {
	return Pattern{regexp.MustCompile("^" + regexp.QuoteMeta(text) + "$")}
}

// Without leaves flags out, by their first names.
func Without(flags []urfave.Flag, names ...string) []urfave.Flag {
	return slices.DeleteFunc(flags, func(f urfave.Flag) bool { return slices.Contains(names, f.Names()[0]) })
}

// Unaliased removes the short names of flags where others of the verb have them.
func Unaliased(flags []urfave.Flag, names ...string) []urfave.Flag {
	for _, flag := range flags {
		if !slices.Contains(names, flag.Names()[0]) {
			continue
		}
		switch f := flag.(type) {
		case stringFlag:
			f.Aliases = nil
		case *typedFlag:
			f.Aliases = nil
		}
	}
	return flags
}

// WaitFlag is --wait and --wait=ready of apply and sync, a boolean flag that can have a value.
type WaitFlag struct{ *urfave.GenericFlag }

// WaitText is the text of the flag.
type WaitText string

func (w *WaitText) Set(text string) error { *w = WaitText(text); return nil }

func (w *WaitText) String() string { return string(*w) }

func (*WaitText) IsBoolFlag() bool { return true }

func (WaitFlag) values() []string { return []string{"ready"} }

// TakesValue keeps the form without a value for help and the manual.
func (WaitFlag) TakesValue() bool { return false }
