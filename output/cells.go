package output

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/docker/go-units"
	"k8s.io/apimachinery/pkg/util/duration"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shortLength is the length of an id in crictl's tables.
const shortLength = 13

const unknownCell = "-"

func shortID(id string, o Options) string {
	if o.NoTrunc {
		return id
	}
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), shortLength)]
}

// age returns the time since nanos: on a terminal in kubectl's form, 4m or 2d3h, otherwise in the form of docker and
// crictl.
func age(nanos int64, o Options) string {
	if nanos <= 0 {
		return unknownCell
	}
	d := o.Now.Sub(time.Unix(0, nanos))
	switch {
	case d < 0:
		return "in the future"
	case o.Terminal && !o.Crictl:
		return duration.HumanDuration(d)
	}
	return units.HumanDuration(d) + " ago"
}

// ago returns an age for use in a sentence: 4m ago.
func ago(nanos int64, o Options) string {
	return duration.HumanDuration(max(o.Now.Sub(time.Unix(0, nanos)), 0)) + " ago"
}

// size returns a size in decimal units, as crictl does.
func size(bytes uint64) string { return units.HumanSizeWithPrecision(float64(bytes), 3) }

// orUnknown returns crictl's text for a missing label.
func orUnknown(s string) string { return cmp.Or(s, "unknown") }

// enumWord converts CONTAINER_RUNNING and SANDBOX_NOTREADY to Running and NotReady.
func enumWord(s string) string {
	word := s[strings.IndexByte(s, '_')+1:]
	switch word {
	case "":
		return ""
	case "NOTREADY":
		return "NotReady"
	}
	return word[:1] + strings.ToLower(word[1:])
}

// maxCell limits the bytes of a name, label or message in a table or an error, because containers choose these texts.
const maxCell = 4096

// Sanitize makes untrusted text from a container safe for a terminal. It escapes control characters, bidirectional
// marks and invalid UTF-8, and truncates the text after maxCell bytes.
func Sanitize(s string) string {
	ellipsis := ""
	if len(s) > maxCell {
		end := maxCell
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s, ellipsis = s[:end], "…"
	}
	if clean(s) {
		return s + ellipsis
	}
	return escape(s, "") + ellipsis
}

// SanitizeText is Sanitize for multi-line text: it keeps newlines and tabs and does not truncate.
func SanitizeText(s string) string {
	if clean(s) {
		return s
	}
	return escape(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t")
}

// SanitizeColored is SanitizeText, but keeps the colours of tables.
func SanitizeColored(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "\x1b")
		b.WriteString(SanitizeText(before))
		if !found {
			return b.String()
		}
		mark := SanitizeText("\x1b")
		for _, tone := range []tone{good, warn, bad, faint, header, endTone} {
			if after, found := strings.CutPrefix(rest, string(tone[1:])); found {
				mark, rest = string(tone), after
				break
			}
		}
		b.WriteString(mark)
		s = rest
	}
}

// escape escapes unsafe characters except those in but.
func escape(s, but string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case (r < ' ' || r == 0x7f) && !strings.ContainsRune(but, r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case harmful(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// clean reports whether s needs no escapes.
func clean(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == utf8.RuneError || harmful(r) }) < 0
}

// harmful reports whether JSON allows r in strings although it moves, hides or reorders text on a terminal: DEL, C1
// controls, format characters such as bidirectional and zero-width marks, private-use characters, line separators.
func harmful(r rune) bool {
	return r >= 0x7f && (unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) || r == '\u2028' || r == '\u2029')
}

// Look holds the values of a row in the table of containers or pods, for `crishim top`.
type Look struct {
	Namespace, Pod, Name string // Name is the container's; "" for a pod
	State                string
	Tone                 Tone
	Restarts             uint32
	Created              int64
	Age, Image           string
}

func ContainerLook(c *runtimeapi.Container, o Options) Look {
	return Look{
		Namespace: Sanitize(podNamespaceOf(c, o)), Pod: Sanitize(podNameOf(c, o)), Name: Sanitize(orUnknown(containerName(c))),
		State: Sanitize(containerState(c, o)), Tone: containerTone(c, o), Restarts: restarts(c),
		Created: c.GetCreatedAt(), Age: age(c.GetCreatedAt(), o), Image: Sanitize(containerImage(c, o)),
	}
}

func PodLook(p *runtimeapi.PodSandbox, o Options) Look {
	r := resultOf(p, o)
	return Look{
		Namespace: Sanitize(podNamespace(p)), Pod: Sanitize(orUnknown(podName(p))),
		State: Sanitize(r.text(o)), Tone: r.tone(), Restarts: uint32(r.Restarts),
		Created: p.GetCreatedAt(), Age: age(p.GetCreatedAt(), o),
	}
}

// Count returns a number with its noun: 1 pod, 2 pods.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
