package client

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Selector is a parsed label selector. The empty selector matches everything.
//
// Kubernetes' own parser rejects values with slashes, spaces and equals signs, but labels of containers contain them.
type Selector []requirement

// requirement is a label that must exist and have one of the values, if there are any. not inverts it.
type requirement struct {
	key    string
	values []string
	not    bool
}

// ParseSelector parses comma-separated requirements, which must all hold: k=v, k==v, k!=v, k in (a,b), k notin (a,b),
// k, !k. A value may be empty. A comma in the value of k=v, k==v and k!=v is written \,. A value in parentheses cannot
// contain a comma.
func ParseSelector(s string) (Selector, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var out Selector
	for _, part := range splitSelector(s) {
		r, reason := parseRequirement(strings.TrimSpace(part))
		if reason != "" {
			return nil, &SyntaxError{
				What: "label selector", Text: s, Reason: reason,
				hint: "use k=v, k!=v, k in (a,b), k notin (a,b), k or !k, separated by commas",
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// Labels returns a selector for exactly these values, without parsing them.
func Labels(labels map[string]string) Selector {
	var out Selector
	for key, value := range labels {
		out = append(out, requirement{key: key, values: []string{value}})
	}
	return out
}

func splitSelector(s string) []string {
	var parts []string
	var b strings.Builder
	depth, escaped := 0, false
	for _, r := range s {
		switch {
		case escaped:
			if r != ',' {
				b.WriteByte('\\')
			}
			b.WriteRune(r)
			escaped = false
			continue
		case r == '\\':
			escaped = true
			continue
		case r == '(' && setSyntax(b.String()):
			depth++
		case r == ')' && depth > 0:
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, b.String())
			b.Reset()
			continue
		}
		b.WriteRune(r)
	}
	if escaped {
		b.WriteByte('\\')
	}
	return append(parts, b.String())
}

// setSyntax reports whether the text before a parenthesis is "k in" or "k notin". Any other parenthesis belongs to a
// value.
func setSyntax(before string) bool {
	f := strings.Fields(before)
	return len(f) == 2 && (f[1] == "in" || f[1] == "notin")
}

func parseRequirement(s string) (r requirement, reason string) {
	if s == "" {
		return r, "must not have an empty part"
	}
	if before, list, ok := strings.Cut(s, "("); ok && setSyntax(before) {
		if list, ok = strings.CutSuffix(list, ")"); !ok {
			return r, "must have a closing parenthesis"
		}
		f := strings.Fields(before)
		r.key, r.not = f[0], f[1] == "notin"
		for v := range strings.SplitSeq(list, ",") {
			r.values = append(r.values, strings.TrimSpace(v))
		}
		return r, checkKey(r.key)
	}
	key, value, equals := strings.Cut(s, "=")
	if equals {
		if key, r.not = strings.CutSuffix(key, "!"); !r.not {
			value = strings.TrimPrefix(value, "=")
		}
		r.values = []string{strings.TrimSpace(value)}
	} else {
		key, r.not = strings.CutPrefix(key, "!")
	}
	r.key = strings.TrimSpace(key)
	return r, checkKey(r.key)
}

func checkKey(key string) string {
	switch {
	case key == "":
		return "each part must have a key"
	case strings.ContainsFunc(key, func(r rune) bool { return unicode.IsSpace(r) || isControl(r) || strings.ContainsRune("()!<>", r) }):
		return fmt.Sprintf("invalid key %q", key)
	}
	return ""
}

func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s {
		v, ok := labels[r.key]
		if (ok && (r.values == nil || slices.Contains(r.values, v))) == r.not {
			return false
		}
	}
	return true
}

// Equalities returns the requirements that a CRI filter can express. The caller must still call Matches.
func (s Selector) Equalities() map[string]string {
	var out map[string]string
	for _, r := range s {
		if r.not || len(r.values) != 1 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[r.key] = r.values[0]
	}
	return out
}
