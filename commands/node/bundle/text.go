package bundle

import (
	"slices"
	"strings"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// removed stands where a secret was.
const removed = "[removed]"

// The kinds of what is removed, as people read them.
const (
	kindEnv        = "environment value"
	kindField      = "value of a field with a secret's name"
	kindAnnotation = "annotation or label"
	kindArgument   = "argument"
	kindWord       = "word after a secret's name"
	kindHeader     = "HTTP header"
	kindAgain      = "the same value as one that is removed elsewhere"
	kindMount      = "name of a mounted secret"
	kindPEM        = "private key"
)

// pattern is the form of a secret that is known without its name. Where it has groups only the last one is removed.
type pattern struct {
	kind  string
	match *lazyregexp.Regexp
	needs []string // one of these is in each match, in lower case: a log of megabytes has few such lines
}

func (p pattern) mayMatch(lower string) bool {
	return len(p.needs) == 0 || slices.ContainsFunc(p.needs, func(part string) bool { return strings.Contains(lower, part) })
}

// patterns are looked for in every text, in this order.
var patterns = []pattern{
	{kindPEM, lazyregexp.New(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`), []string{"private key"}},
	// The last lines of a log may begin within one.
	{kindPEM, lazyregexp.New(`(?:[^\n]*[A-Za-z0-9+/=]{16,}[ \t\r]*\n)*[^\n]*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----`), []string{"private key"}},
	{kindPEM, lazyregexp.New(`LS0tLS1CRUdJTi[A-Za-z0-9+/_-]{20,}={0,2}`), []string{"ls0tls1crudjti"}}, // the same in base64; a certificate goes with it
	{"JSON web token", lazyregexp.New(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)*`), []string{"eyj"}},
	{"user and password of a URL", lazyregexp.New(`\b(?:[a-zA-Z][a-zA-Z0-9+.-]*)://([^\s/@:'"<>]*:[^\s/'"<>]*[^\s/'"<>@])@`), []string{"://"}},
	{"user and password of a URL", lazyregexp.New(`\bhttps?://([^\s/@:'"<>]{4,})@`), []string{"://"}},
	{"user and password of an address", lazyregexp.New(`([\w.%-]+:[^\s@/'"]+)@(?:tcp|unix|udp)\(`), []string{"@tcp(", "@unix(", "@udp("}},
	{"parameter of a signed URL", lazyregexp.New(`(?i)[?&](?:x-amz-[\w-]+|x-goog-[\w-]+|sig|signature|code|key|(?:[\w-]*token)|se|sp|skoid|policy|key-pair-id)=([^&\s"'<>\\]+)`), []string{"?", "&"}},
	{"authorization", lazyregexp.New(`(?i)\b(?:bearer|basic|negotiate|digest)\s+([A-Za-z0-9._~+/=-]{16,})`), []string{"bearer", "basic", "negotiate", "digest"}},
	{kindHeader, lazyregexp.New(`(?i)\b(?:proxy-)?(?:authorization|set-cookie|cookie|x-[a-z-]*(?:token|auth|key|secret)[a-z-]*)["']?\s*[:=]\s*["'\[{]*([^\r\n"']+)`), []string{"authorization", "cookie", "x-"}},
	{"token of a known service", lazyregexp.New(`\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|gl[a-z]{2,4}-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|[sr]k_(?:live|test)_\w{10,}|sk-[\w-]{20,}|npm_\w{30,}|dckr_[a-z]+_[\w-]{16,}|hf_\w{30,}|hv[sbr]\.[\w-]{20,}|do[opr]_v1_[a-f0-9]{40,}|pypi-[\w-]{40,}|ya29\.[\w-]{10,}|SG\.[\w-]{10,}\.[\w-]{10,}|AGE-SECRET-KEY-1\w{20,})\b`), nil},
	{"bootstrap token", lazyregexp.New(`(?:^|[\s"'=:])([a-z0-9]{0,5}[0-9][a-z0-9]{0,5}\.[a-z0-9]{16})(?:$|[\s"',;])`), []string{"."}},
	{"password hash", lazyregexp.New(`\$(?:1|2[abxy]?|5|6|7|y|gy|argon2(?:id|i|d))\$[^\s:"',]{8,}`), []string{"$"}},
	{"address of a webhook", lazyregexp.New(`\b(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks|api\.telegram\.org)/([^\s"'<>\\]+)`), []string{"hooks.slack.com/", "api/webhooks/", "api.telegram.org/"}},
	{kindMount, lazyregexp.New(`kubernetes\.io~secret/([^/\s"'\\]+)`), []string{"kubernetes.io~secret"}},
	// As a kubelet logs a container that it could not start.
	{kindEnv, lazyregexp.New(`\bEnvVar\{Name:\s*"?[\w.-]+"?,\s*Value:\s*("(?:[^"\\]|\\.)*"|.*?),\s*ValueFrom:`), []string{"envvar{"}},
}

// pairs are a name and a value in two fields, as manifests have variables; with quotes that JSON escapes, too.
var pairs = []*lazyregexp.Regexp{
	lazyregexp.New(`(?i)\b(?:name|key)\\*["']?\s*[:=]\s*\\*["']?([\w.-]+)\\*["']?\s*,?\s*\\*["']?value\\*["']?\s*[:=]\s*\\*"((?:[^"\\\n]|\\[^"\n])+)`),
	lazyregexp.New(`(?i)\b(?:name|key)\\*["']?\s*[:=]\s*\\*["']?([\w.-]+)\\*["']?\s*,?\s*\\*["']?value\\*["']?\s*[:=]\s*'?([^\s,;}\]\\"']+)`),
}

// assignment is NAME=value, name: value and "name": "value", also of TOML, with the quotes that JSON escapes, and of a list.
var assignment = lazyregexp.New(`([A-Za-z_][\w.-]*)(\\?["']?[ \t]*(?::=|=>|=|:)[ \t]*\\?)("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\[[^\]\n]*\]|[^\s,;&"'(){}\[\]\\]+)`)

// flagged is --name value.
var flagged = lazyregexp.New(`(^|[\s"'\[,])(--?[A-Za-z][\w-]*)("?,?\s+|["'],\s*)("[^"\n]*"|'[^'\n]*'|[^\s"',\]]+)`)

// word is what a sentence goes on with after "token:".
var word = lazyregexp.New(`^[A-Za-z]?[a-z]+[.,;:!]?$`)

// replace replaces the last group of each match, the whole where there is none, and tells each to found. kind returns what kind of
// secret it is, "" for none; one that is none may have one in it, such as msg="password=x".
func replace(text string, match *lazyregexp.Regexp, kind func(groups []string) string, found func(kind, secret string)) string {
	var b strings.Builder
	for {
		at := match.FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(text)
			return b.String()
		}
		groups := make([]string, len(at)/2)
		for i := range groups {
			if at[2*i] >= 0 {
				groups[i] = text[at[2*i]:at[2*i+1]]
			}
		}
		from, to := at[len(at)-2], at[len(at)-1]
		secret := groups[len(groups)-1]
		what := ""
		switch {
		case secret == "" || strings.Contains(secret, removed[:len(removed)-1]): // a pattern may end before a bracket
			b.WriteString(text[:at[1]])
			text = text[at[1]:]
			continue
		default:
			what = kind(groups)
		}
		if what == "" {
			b.WriteString(text[:from])
			text = text[from:]
			continue
		}
		found(what, secret)
		b.WriteString(text[:from])
		if secret[0] == '"' || secret[0] == '\'' {
			b.WriteString(secret[:1] + removed + secret[:1])
		} else {
			b.WriteString(removed)
		}
		text = text[to:]
	}
}

// login is -u user:password, as curl has it; mysql and redis have their passwords behind one letter.
var (
	login = lazyregexp.New(`(?:^|[\s"'])(?:-u|-U|--user|--proxy-user)[ =]["']?[^\s:"'=/]+:([^\s"']+)`)
	short = lazyregexp.New(`\b(?:(?:mysql|mariadb)[\w-]*\b[^\n|;&]*?\s-p|redis-cli\b[^\n|;&]*?\s-a\s+)([^\s"'-][^\s"']*)`)
)

// form is what kind of text it is, which tells how sure a pattern may be.
type form int

const (
	prose    form = iota // logs and messages
	settings             // configuration files
	command              // a command line
)

// stems are parts of the names of all secrets.
var stems = []string{"pass", "pwd", "secret", "token", "cred", "auth", "key", "bearer", "jwt", "cookie", "dsn", "sig", "psk", "session", "htpasswd", "docker", "kubeconfig", "sas", "conn", "url"}

// byPattern removes what has the form of a secret, and tells each to found.
func byPattern(text string, f form, found func(kind, secret string)) string {
	if f != prose || !strings.Contains(text, "\n") {
		return formsIn(text, f, found)
	}
	if strings.Contains(text, "PRIVATE KEY") { // the only one of several lines
		text = formsIn(text, f, found)
	}
	var b strings.Builder
	b.Grow(len(text))
	for line := range strings.Lines(text) {
		b.WriteString(formsIn(line, f, found))
	}
	return b.String()
}

func formsIn(text string, f form, found func(kind, secret string)) string {
	lower := strings.ToLower(text)
	t := &finder{text, found}
	for _, p := range patterns {
		if p.mayMatch(lower) {
			t.take(p.match, func([]string) string { return p.kind })
		}
	}
	named := slices.ContainsFunc(stems, func(stem string) bool { return strings.Contains(lower, stem) })
	if named && strings.Contains(lower, "value") {
		for _, match := range pairs {
			t.take(match, func(g []string) string { return kindIf(isSecretField(g[1], g[2]), kindField) })
		}
	}
	if named && strings.ContainsAny(text, "=:") {
		t.take(assignment, func(g []string) string {
			if f == prose && isSentence(g[2], g[3]) {
				return kindIf(isPasswordName(g[1]) && isSecretField(g[1], g[3]), kindWord)
			}
			return kindIf(isSecretField(g[1], strings.Trim(g[3], `"'`)), kindField)
		})
	}
	if strings.Contains(text, " -") || strings.HasPrefix(text, "-") || named && strings.Contains(text, "-") {
		t.flags(f)
	}
	if f == settings {
		return blocks(t.text, found)
	}
	return t.text
}

// finder removes secrets from a text, and tells each to found.
type finder struct {
	text  string
	found func(kind, secret string)
}

func (t *finder) take(match *lazyregexp.Regexp, kind func(groups []string) string) {
	t.text = replace(t.text, match, kind, func(kind, secret string) {
		list, ok := strings.CutPrefix(secret, "[")
		if !ok {
			t.found(kind, strings.Trim(secret, `"'`))
			return
		}
		for one := range strings.SplitSeq(strings.TrimSuffix(list, "]"), ",") {
			t.found(kind, strings.Trim(one, `"' `))
		}
	})
}

// flags removes the values of flags.
func (t *finder) flags(f form) {
	notPlain := func(g []string) string { return kindIf(!plainValue.MatchString(g[1]), kindArgument) }
	t.take(login, notPlain)
	t.take(short, notPlain)
	t.take(flagged, func(g []string) string {
		kind := kindArgument
		if f == prose && word.MatchString(g[4]) {
			kind = kindWord
		}
		return kindIf(isSecretFlag(g[2], strings.Trim(g[4], `"'`), f), kind)
	})
}

func kindIf(secret bool, kind string) string {
	if secret {
		return kind
	}
	return ""
}

// isSecretField reports whether a value is a secret by the name that stands before it.
func isSecretField(name, value string) bool {
	return isSecretName(name) && !isTrivial(value) && !isPath(value)
}

// isSentence reports whether a name and its value may be words of a sentence: "cannot fetch token: unauthorized".
func isSentence(separator, value string) bool {
	return strings.TrimSpace(separator) == ":" && strings.HasSuffix(separator, " ") && word.MatchString(value)
}

// isSecretFlag reports whether the value of a flag is a secret.
func isSecretFlag(flag, value string, f form) bool {
	switch {
	case strings.HasPrefix(value, "-") || isTrivial(value) || isPath(value):
		return false
	case flag == "-p":
		return f == command && !plainValue.MatchString(value)
	}
	return isSecretName(flag)
}

// isPath reports whether a value names a file, which is no secret itself. A secret in base64 may begin with a slash.
func isPath(value string) bool {
	return len(value) > 1 && (strings.HasPrefix(value, "/") || strings.HasPrefix(value, "./")) && plainValue.MatchString(strings.TrimPrefix(value, ".")) && !isRandom(value)
}

// isRandom reports whether a part of a value looks like a key in base64: letters of both cases and digits, and many of them.
func isRandom(value string) bool {
	return slices.ContainsFunc(strings.Split(value, "/"), func(part string) bool {
		return len(part) >= 16 && strings.ContainsAny(part, "0123456789") && strings.ToLower(part) != part && strings.ToUpper(part) != part
	})
}

// blockStart is a key of YAML whose value is in the lines below it.
var blockStart = lazyregexp.New(`^(\s*)(?:- )?["']?([\w.-]+)["']?\s*:\s*(?:[|>][+-]?\d*)?\s*$`)

// blocks removes the lines that belong to a secret's name in YAML.
func blocks(text string, found func(kind, secret string)) string {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		start := blockStart.FindStringSubmatch(lines[i])
		if start == nil || !isSecretName(start[2]) {
			continue
		}
		for i+1 < len(lines) {
			below := strings.TrimLeft(lines[i+1], " \t")
			indent := len(lines[i+1]) - len(below)
			if below != "" && indent <= len(start[1]) {
				break
			}
			i++
			if below != "" && !strings.Contains(below, removed) {
				found(kindField, strings.TrimLeft(below, "- "))
				lines[i] = lines[i][:indent] + removed
			}
		}
	}
	return strings.Join(lines, "\n")
}

// arguments removes secrets from a command line whose words are apart.
//
//nolint:gocyclo // one flat switch over the forms of arguments
func arguments(words []string, found func(kind, secret string)) []string {
	out := slices.Clone(words)
	secret := func(i int, value string) {
		if !strings.Contains(value, removed) {
			found(kindArgument, value)
			out[i] = strings.TrimSuffix(out[i], value) + removed
		}
	}
	program := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, name) })
		})
	}
	mysql, redis := program("mysql", "mariadb"), program("redis-cli")
	for i, w := range out {
		name, value, assigned := strings.Cut(w, "=")
		bare := strings.TrimLeft(name, "-")
		isFlag, last := strings.HasPrefix(w, "-"), i+1 == len(out)
		switch {
		case strings.ContainsAny(bare, " \t\n"), !isFlag && strings.ContainsAny(w, " \t\n"): // a script
		case assigned && isSecretName(bare) && !isTrivial(value) && !isPath(value):
			secret(i, value)
		case !isFlag || assigned:
		case mysql && strings.HasPrefix(w, "-p") && len(w) > 2:
			secret(i, w[2:])
		case last || strings.HasPrefix(out[i+1], "-"):
		case w == "-p" && !plainValue.MatchString(out[i+1]), w == "-a" && redis, isSecretName(bare) && !isTrivial(out[i+1]) && !isPath(out[i+1]):
			secret(i+1, out[i+1])
		case w == "-u" || w == "--user" || w == "--proxy-user" || w == "-U":
			if _, password, ok := strings.Cut(out[i+1], ":"); ok && !plainValue.MatchString(password) {
				secret(i+1, password)
			}
		}
	}
	for i, w := range out {
		out[i] = byPattern(w, command, found)
	}
	return out
}
