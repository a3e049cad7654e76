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

// shortLength is how much of an id crictl's tables show.
const shortLength = 13

const unknownCell = "-"

func shortID(id string, o Options) string {
	if o.NoTrunc {
		return id
	}
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), shortLength)]
}

// age returns how long ago a time was: on a terminal as kubectl shows it, 4m or 2d3h, else as docker and crictl do.
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

// ago is an age within a sentence: 4m ago.
func ago(nanos int64, o Options) string {
	return duration.HumanDuration(max(o.Now.Sub(time.Unix(0, nanos)), 0)) + " ago"
}

// size returns bytes in decimal units, as crictl does.
func size(bytes uint64) string { return units.HumanSizeWithPrecision(float64(bytes), 3) }

// orUnknown returns what crictl shows for a missing label.
func orUnknown(s string) string { return cmp.Or(s, "unknown") }

// enumWord turns CONTAINER_RUNNING or SANDBOX_NOTREADY into Running, NotReady.
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

// maxCell bounds what one name, label or message may take of a table or an
// error, in bytes; containers choose these texts.
const maxCell = 4096

// Sanitize makes text that a container controls safe for a terminal: control
// characters, bidirectional marks and broken UTF-8 become escapes, and text is cut
// after 4096 bytes.
func Sanitize(s string) string {
	ellipsis := ""
	if len(s) > maxCell {
		s, ellipsis = s[:maxCell], "…"
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
	}
	if clean(s) {
		return s + ellipsis
	}
	return escape(s, "") + ellipsis
}

// SanitizeText is Sanitize for lines of text: it keeps line ends and tabs, and cuts nothing.
func SanitizeText(s string) string {
	if clean(s) {
		return s
	}
	return escape(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t")
}

// SanitizeColored is SanitizeText that keeps the tones of tables.
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

// escape escapes what is not clean, but for these control characters.
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

// clean reports whether nothing in s needs an escape.
func clean(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == utf8.RuneError || harmful(r) }) < 0
}

// harmful reports the runes that JSON allows in strings and that move, hide or reorder text on a terminal:
// the delete character, C1 controls, bidirectional and zero-width marks, line separators.
func harmful(r rune) bool {
	return r >= 0x7f && (unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) || r == '\u2028' || r == '\u2029')
}

// Look is a row of the tables of containers and pods, for views that are no table.
type Look struct {
	Namespace, Pod, Name string // Name is the container's, "" for a pod
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
