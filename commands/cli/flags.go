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

	"github.com/crishim/crishim/internal/lazyregexp"
	urfave "github.com/urfave/cli/v2"
)

// The declaration of a flag binds it to a field of its verb's options. The flag is not read by name again.

// boolFlag and stringFlag have their own Names, because urfave's matches every name against a regular expression at
// each lookup. The matching takes a fortieth of the time of a short command.
type boolFlag struct{ *urfave.BoolFlag }

func (f boolFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }
func (f boolFlag) String() string  { return urfave.FlagStringer(f) }

type stringFlag struct{ *urfave.StringFlag }

func (f stringFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }
func (f stringFlag) String() string  { return urfave.FlagStringer(f) }

func BoolFlag(to *bool, name, usage string, aliases ...string) urfave.Flag {
	return boolFlag{&urfave.BoolFlag{Name: name, Aliases: aliases, Usage: usage, Destination: to, DisableDefaultText: true}}
}

// StringFlag returns a flag that takes any text; *to is its default.
func StringFlag(to *string, name, usage string, aliases ...string) urfave.Flag {
	return stringFlag{&urfave.StringFlag{Name: name, Aliases: aliases, Usage: usage, Destination: to, Value: *to}}
}

// IntFlag returns a flag that takes a whole number; *to is its default. Help omits a default of 0 or -1.
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

// typedFlag is a flag with a parser. Errors of the parser are wrong usage.
type typedFlag struct {
	*urfave.GenericFlag
	text     *flagText
	Words    []string // the values that completion offers
	Repeated bool
	number   bool // crictl reports a wrong value as a "parse error"

	placeholder string // for the value in help, if the usage has no word in backticks
}

type flagText struct {
	read func(string) error
	err  error
}

// Set reads the text of the flag. urfave then sets the other names of the flag to the result of Serialize.
func (t *flagText) Set(text string) error {
	if text != alreadySet {
		t.err = t.read(text)
	}
	return t.err
}

func (*flagText) String() string { return "" }

// Serialize returns a placeholder for the text, so that the flag's other names do not parse it again.
func (*flagText) Serialize() string { return alreadySet }

const alreadySet = "\x00already set"

// IsSliceFlag reports whether the flag may be given several times.
func (f *typedFlag) IsSliceFlag() bool { return f.Repeated }

func (f *typedFlag) values() []string { return f.Words }

func (f *typedFlag) String() string { return urfave.FlagStringer(f) }

func (f *typedFlag) Names() []string { return append([]string{f.Name}, f.Aliases...) }

// Number marks a flag that is a number in crictl. With --compat=crictl, a wrong value is reported as a "parse error".
func (f *typedFlag) Number() *typedFlag {
	f.number = true
	return f
}

// NewTyped returns a flag that passes its text to read.
func NewTyped(read func(string) error, name, usage string, aliases []string) *typedFlag {
	text := &flagText{read: read}
	return &typedFlag{GenericFlag: &urfave.GenericFlag{Name: name, Aliases: aliases, Usage: usage, Value: text}, text: text}
}

// Typed returns a flag that stores the result of parse in *to.
func Typed[T any](to *T, parse func(string) (T, error), name, usage string, aliases ...string) *typedFlag {
	return NewTyped(func(text string) error {
		value, err := parse(text)
		if err == nil {
			*to = value
		}
		return err
	}, name, usage, aliases)
}

// ListFlag returns a flag that may be given several times.
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

func StringsFlag(to *[]string, name, usage string, aliases ...string) urfave.Flag {
	return ListFlag(to, anyText, name, usage, aliases...)
}

func anyText(text string) (string, error) { return text, nil }

// WordFlag returns a flag that takes one of a few words, in any case, or "" if that is the default.
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

// chosen returns a flag that takes any text, and offers words for completion.
func chosen(to *string, words []string, name, usage string, aliases ...string) *typedFlag {
	flag := Typed(to, anyText, name, usage, aliases...)
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

// addLabels reads k=v[,k=v]. A value may contain '='. A part without '=' after a comma belongs to the value before it.
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

// ExactPattern matches one text.
func ExactPattern(text string) Pattern {
	return Pattern{regexp.MustCompile("^" + regexp.QuoteMeta(text) + "$")}
}

// WithoutFlags returns flags except the flags with these primary names.
func WithoutFlags(flags []urfave.Flag, names ...string) []urfave.Flag {
	return slices.DeleteFunc(flags, func(f urfave.Flag) bool { return slices.Contains(names, f.Names()[0]) })
}

// WithoutShortNames removes the aliases of the flags with these primary names.
func WithoutShortNames(flags []urfave.Flag, names ...string) []urfave.Flag {
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

// WaitFlag is a boolean flag that can have a value: --wait and --wait=ready.
type WaitFlag struct{ *urfave.GenericFlag }

// WaitText is the value of a WaitFlag.
type WaitText string

func (w *WaitText) Set(text string) error { *w = WaitText(text); return nil }

func (w *WaitText) String() string { return string(*w) }

func (*WaitText) IsBoolFlag() bool { return true }

func (WaitFlag) values() []string { return []string{"ready"} }

func (WaitFlag) TakesValue() bool { return false }

// flagError matches the flag package's error about a value.
var flagError = lazyregexp.New(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-([\w-]+): (.*)$`)

// flagComplaint turns urfave's error about a flag's value into a usage error.
func flagComplaint(flags []urfave.Flag, err error) error {
	m := flagError.FindStringSubmatch(err.Error())
	if m == nil {
		return Usagef("%v", err)
	}
	value, name, reason := m[1], m[2], m[3]
	e := &UsageError{}
	if reason == "parse error" {
		e.Crictl, reason = err.Error(), "must be a number"
	}
	for _, flag := range flags {
		if !slices.Contains(flag.Names(), name) {
			continue
		}
		name, e.Names = flag.Names()[0], flag.Names()
		if f, ok := flag.(*typedFlag); ok && f.text.err != nil {
			e.Next = HintOf(f.text.err)
			if f.number {
				e.Crictl = fmt.Sprintf("invalid value %s for flag -%s: parse error", value, m[2])
			}
		}
	}
	e.Text = fmt.Sprintf("invalid --%s %s: %s", name, value, reason)
	return e
}

func NotEmpty(text string) (string, error) {
	if text == "" {
		return "", errors.New("must not be empty")
	}
	return text, nil
}
