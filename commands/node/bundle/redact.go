package bundle

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// Removal is what was removed in one place: never the value.
type Removal struct {
	File  string `json:"file"`
	Where string `json:"where"` // path of the field, or the first line
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// redactor removes secrets in two passes over all that is collected: [redactor.tree] and [redactor.text] by the names of
// fields and by the form of values, and then [redactor.again] what they have removed wherever else it is.
type redactor struct {
	keepEnv bool
	public  map[string]bool // names that the bundle is full of: of pods, namespaces, images
	values  map[string]bool // removed, and to be looked for
	log     map[Removal]int

	all    *strings.Replacer
	shorts []string           // values that may be a part of other words
	short  *lazyregexp.Regexp // they, as words

	file string // that is looked at
}

func newRedactor(keepEnv bool) *redactor {
	return &redactor{keepEnv: keepEnv, public: map[string]bool{}, values: map[string]bool{}, log: map[Removal]int{}}
}

// publish notes names that are no secrets, even where one has the same value.
func (r *redactor) publish(names ...string) {
	for _, name := range names {
		r.public[strings.ToLower(name)] = true
	}
}

func (r *redactor) note(where, kind string) { r.log[Removal{File: r.file, Where: where, Kind: kind}]++ }

// took notes the removal of a value that its name or form says to be a secret, to be looked for elsewhere too.
func (r *redactor) took(where, kind, value string) {
	r.note(where, kind)
	if kind != kindMount && kind != kindWord {
		r.remember(value, true)
	}
}

func (r *redactor) remember(value string, named bool) {
	value = strings.TrimSpace(value)
	least := 8
	if named {
		least = 4
	}
	plain := plainValue.MatchString(value)
	switch {
	case len(value) < least, strings.Contains(value, removed), r.public[strings.ToLower(value)], slices.Contains(commonWords, strings.ToLower(value)):
	case plain && (!named || len(value) < 6):
	default:
		r.values[value] = true
	}
}

// tree removes secrets from a decoded JSON document by the names of its fields.
func (r *redactor) tree(path string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			v[key] = r.field(join(path, key), key, v[key])
		}
		if name, _ := cmp.Or(v["name"], v["key"]).(string); isSecretName(name) {
			v["value"] = r.leaves(join(path, "value"), kindField, v["value"])
		}
		if v["kind"] == "Secret" {
			for _, key := range []string{"data", "stringData"} {
				v[key] = r.leaves(join(path, key), kindField, v[key])
			}
		}
	case []any:
		if lines, ok := stringsIn(v); ok && slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "PRIVATE KEY") }) {
			return r.string(path, strings.Join(lines, "\n")) // a key of several lines
		}
		for i, e := range v {
			v[i] = r.tree(fmt.Sprintf("%s[%d]", path, i), e)
		}
	case string:
		return r.string(path, v)
	}
	return v
}

// stringsIn returns the elements of a list of strings.
func stringsIn(list []any) (all []string, ok bool) {
	for _, e := range list {
		text, ok := e.(string)
		if !ok {
			return nil, false
		}
		all = append(all, text)
	}
	return all, true
}

func join(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// field removes what is secret of a field's value.
func (r *redactor) field(path, key string, v any) any {
	switch name := strings.ToLower(key); {
	case name == "env" || name == "envs" || name == "environment" || name == "environ":
		return r.environment(path, v)
	case name == "annotations" || name == "labels" || strings.HasSuffix(name, ".annotations"):
		if m, ok := v.(map[string]any); ok {
			return r.annotations(path, m)
		}
	case name == "headers" || name == "httpheaders":
		return r.leaves(path, kindHeader, v)
	case name == "args" || name == "command" || name == "cmd" || name == "entrypoint" || name == "argv" || name == "cmdline" || name == "processargs":
		return r.commandLine(path, v)
	case isSecretName(key):
		return r.leaves(path, kindField, v)
	}
	return r.tree(path, v)
}

// string removes secrets from a string, which may be a JSON document itself.
func (r *redactor) string(path, text string) string {
	if trimmed := strings.TrimSpace(text); len(trimmed) > 1 && (trimmed[0] == '{' || trimmed[0] == '[') {
		if document, err := decode([]byte(trimmed)); err == nil {
			before := len(r.log)
			if out, err := encode(r.tree(path, document), ""); err == nil && len(r.log) > before {
				return string(out)
			}
		}
	}
	return byPattern(text, prose, func(kind, secret string) { r.took(path, kind, secret) })
}

// leaves removes all values below a field, but what only names or places a secret.
func (r *redactor) leaves(path, kind string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, e := range v {
			if all := words(key); len(all) > 0 && slices.Contains(harmlessEnds, all[len(all)-1]) {
				v[key] = r.tree(join(path, key), e)
				continue
			}
			v[key] = r.leaves(join(path, key), kind, e)
		}
	case []any:
		for i, e := range v {
			v[i] = r.leaves(fmt.Sprintf("%s[%d]", path, i), kind, e)
		}
	case string:
		if isTrivial(v) || isPath(v) {
			return v
		}
		r.took(path, kind, v)
		return removed
	case json.Number:
		if isTrivial(v.String()) {
			return v
		}
		r.took(path, kind, v.String())
		return removed
	}
	return v
}

// environment removes the values of variables, in each form that there is of them.
func (r *redactor) environment(path string, v any) any {
	one := func(name, value string) string {
		if value == "" || r.keepEnv && !isSecretName(name) {
			return r.string(path+"["+name+"]", value)
		}
		r.note(path+"["+name+"]", kindEnv)
		if !plainVariables.MatchString(name) {
			r.remember(value, isSecretName(name))
		}
		return removed
	}
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			switch e := e.(type) {
			case string:
				name, value, ok := strings.Cut(e, "=")
				if !ok {
					name, value = "", e
					v[i] = one(name, value)
					continue
				}
				v[i] = name + "=" + one(name, value)
			case map[string]any:
				name, _ := cmp.Or(e["key"], e["name"], e["Key"], e["Name"]).(string)
				for _, key := range []string{"value", "Value"} {
					if value, ok := e[key].(string); ok {
						e[key] = one(name, value)
					}
				}
			default:
				v[i] = r.leaves(path, kindEnv, e)
			}
		}
	case map[string]any:
		for name, e := range v {
			if value, ok := e.(string); ok {
				v[name] = one(name, value)
			} else {
				v[name] = r.leaves(join(path, name), kindEnv, e)
			}
		}
	case string:
		return one("", v)
	}
	return v
}

// carriers are annotations that hold a whole manifest.
var carriers = lazyregexp.New(`last-applied|kubernetes\.io/config\.(?:mirror|seen-manifest)$|/inject-template|agent-inject-(?:template|secret)`)

func (r *redactor) annotations(path string, m map[string]any) map[string]any {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		where := path + "[" + key + "]"
		text, ok := m[key].(string)
		switch {
		case !ok:
			m[key] = r.tree(where, m[key])
		case carriers.MatchString(key) && text != "" && !strings.HasSuffix(key, "config.mirror"):
			r.note(where, kindAnnotation)
			if document, err := decode([]byte(text)); err == nil { // what it holds is looked for elsewhere
				r.tree(where, document)
			}
			m[key] = removed
		case isSecretName(lastPart(key)) && !isTrivial(text) && !isPath(text):
			r.took(where, kindAnnotation, text)
			m[key] = removed
		default:
			m[key] = r.string(where, text)
		}
	}
	return m
}

// lastPart is a label's name without the domain that defines it: vault.hashicorp.com/role says nothing of the value.
func lastPart(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

func (r *redactor) commandLine(path string, v any) any {
	found := func(kind, secret string) { r.took(path, kind, secret) }
	switch v := v.(type) {
	case string:
		return byPattern(v, command, found)
	case []any:
		texts, ok := stringsIn(v)
		if !ok {
			return r.tree(path, v)
		}
		for i, text := range arguments(texts, found) {
			v[i] = text
		}
	default:
		return r.tree(path, v)
	}
	return v
}

// text removes secrets from a text by their form.
func (r *redactor) text(text string, f form) string {
	return byPattern(text, f, func(kind, secret string) {
		line := 1
		if at := strings.Index(text, secret); at >= 0 {
			line += strings.Count(text[:at], "\n")
		}
		r.took(fmt.Sprint("line ", line), kind, secret)
	})
}

// againText is again for each line of a text.
func (r *redactor) againText(text string) string {
	var b strings.Builder
	number := 0
	for line := range strings.Lines(text) {
		number++
		b.WriteString(r.again(fmt.Sprint("line ", number), line))
	}
	return b.String()
}

// learn ends the first pass: from now on again finds all that was removed, in the forms that it may have elsewhere.
func (r *redactor) learn() {
	forms := map[string]bool{}
	add := func(value string) {
		switch {
		case strings.Contains(removed, value):
		case len(value) >= 8 || !utf8.ValidString(value):
			forms[value] = true
		default:
			r.shorts = append(r.shorts, value)
		}
	}
	for value := range r.values {
		add(value)
		quoted, _ := json.Marshal(value) // of a string: no error
		for _, form := range []string{
			string(quoted[1 : len(quoted)-1]), url.QueryEscape(value), url.PathEscape(value),
			base64.StdEncoding.EncodeToString([]byte(value)), base64.RawStdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
		} {
			if len(form) >= 8 {
				forms[form] = true
			}
		}
		if strings.Contains(value, "\n") {
			for line := range strings.Lines(value) {
				fields := strings.Fields(line) // in a log its time may be before it
				for _, part := range []string{strings.TrimSpace(line), fields[max(len(fields)-1, 0)]} {
					if len(part) >= 16 {
						forms[part] = true
					}
				}
			}
		}
		if decoded, err := base64.StdEncoding.DecodeString(value); err == nil && len(decoded) >= 8 && utf8.Valid(decoded) {
			forms[string(decoded)] = true
			if _, password, ok := strings.Cut(string(decoded), ":"); ok && len(password) >= 4 { // a registry's auth
				add(password)
			}
		}
	}
	longest := slices.SortedFunc(maps.Keys(forms), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(longest))
	for _, form := range longest {
		pairs = append(pairs, form, removed)
	}
	r.all = strings.NewReplacer(pairs...)
	quoted := make([]string, len(r.shorts))
	for i, value := range r.shorts {
		quoted[i] = regexp.QuoteMeta(value)
	}
	r.short = lazyregexp.New(`(^|[^A-Za-z0-9])(` + strings.Join(quoted, "|") + `)($|[^A-Za-z0-9])`)
}

// again removes values that were removed elsewhere from a text without structure.
func (r *redactor) again(where, text string) string {
	out := r.without(text)
	if out != text {
		r.note(where, kindAgain)
	}
	return out
}

// without returns a text without the values that were removed elsewhere.
func (r *redactor) without(text string) string {
	text = r.all.Replace(text)
	if slices.ContainsFunc(r.shorts, func(value string) bool { return strings.Contains(text, value) }) {
		for i := 0; i < 2; i++ { // two in a row share what is between them
			text = r.short.ReplaceAllString(text, "${1}"+removed+"${3}")
		}
	}
	return text
}

// againTree is again for each string of a document, and for the names of its fields.
func (r *redactor) againTree(path string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, e := range v {
			out[r.again(path, key)] = r.againTree(join(path, key), e)
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = r.againTree(fmt.Sprintf("%s[%d]", path, i), e)
		}
	case string:
		return r.again(path, v)
	}
	return v
}

// removals lists what was removed, by file and place. A place whose name is a secret itself is not named.
func (r *redactor) removals() []Removal {
	all := map[Removal]int{}
	for at, count := range r.log {
		at.File, at.Where = r.without(at.File), r.without(at.Where)
		all[at] += count
	}
	var list []Removal
	for at, count := range all {
		at.Count = count
		list = append(list, at)
	}
	slices.SortFunc(list, func(a, b Removal) int {
		return cmp.Or(strings.Compare(a.File, b.File), strings.Compare(a.Where, b.Where), strings.Compare(a.Kind, b.Kind))
	})
	return list
}
