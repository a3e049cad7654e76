// Package lazyregexp compiles regular expressions at first use, like Go's internal package of this name. Compiling them
// in package variables would add milliseconds to the start of each command, and few commands use them.
package lazyregexp

import (
	"regexp"
	"sync"
)

type Regexp struct{ compiled func() *regexp.Regexp }

// New returns the regular expression for a text. If the text is invalid, the first use panics.
func New(text string) *Regexp {
	return &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

func (r *Regexp) MatchString(text string) bool { return r.compiled().MatchString(text) }

func (r *Regexp) FindString(text string) string { return r.compiled().FindString(text) }

func (r *Regexp) FindStringSubmatch(text string) []string {
	return r.compiled().FindStringSubmatch(text)
}

func (r *Regexp) ReplaceAllString(text, by string) string {
	return r.compiled().ReplaceAllString(text, by)
}

func (r *Regexp) ReplaceAllStringFunc(text string, by func(string) string) string {
	return r.compiled().ReplaceAllStringFunc(text, by)
}
