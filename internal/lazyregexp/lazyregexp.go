// Package lazyregexp has regular expressions that are compiled when they are first used, as Go's own internal package of
// that name: those of package variables would cost each command milliseconds at its start, and few commands use them.
package lazyregexp

import (
	"regexp"
	"sync"
)

type Regexp struct{ compiled func() *regexp.Regexp }

// New returns the regular expression of a text, which must be valid: the first use panics else.
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
