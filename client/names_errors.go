package client

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
)

// ambiguous lists what a reference could mean, with what tells it apart.
func (w *world) ambiguous(kind candidateKind, ref string, found []candidate) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	n := uniqueLength(found)
	for _, c := range found {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", clean(c.id[:min(n, len(c.id))]), clean(c.path()), c.state, age(w.now, c.created))
	}
	_ = tw.Flush() // a strings.Builder takes everything
	hint := "give one of these ids"
	if distinct(found) == len(found) {
		hint = fmt.Sprintf("give one of these ids, or a longer name such as %s", clean(found[0].path()))
	}
	return &Error{
		Code: codes.FailedPrecondition, text: fmt.Sprintf("%q may be %d %ss:", ref, len(found), kind.name), list: strings.Split(strings.TrimRight(b.String(), "\n"), "\n"),
		hint: hint,
	}
}

// path is the longest name of a candidate.
func (c candidate) path() string {
	parts := []string{c.namespace, c.podName}
	if c.container != nil {
		parts = append(parts, c.name)
	}
	for len(parts) > 1 && parts[0] == "" {
		parts = parts[1:]
	}
	return strings.Join(parts, "/")
}

// uniqueLength is how much of the ids tells them apart, 13 at least, which
// is what tables show.
func uniqueLength(found []candidate) int {
	n := 13
	for i, a := range found {
		for _, b := range found[i+1:] {
			k := 0
			for k < len(a.id) && k < len(b.id) && a.id[k] == b.id[k] {
				k++
			}
			n = max(n, k+1)
		}
	}
	return n
}

func (w *world) notRunning(kind candidateKind, ref string, c candidate) error {
	hint := ""
	if kind == containerKind && c.state == "created" {
		hint = "`crishim start " + clean(ref) + "` starts it"
	} else if kind == containerKind {
		hint = "`crishim logs " + clean(ref) + "` shows why it ended"
	}
	return &Error{
		Code: codes.FailedPrecondition,
		text: fmt.Sprintf("%s %q is not %s: its state is %s, created %s ago", kind.name, ref, kind.running, c.state, age(w.now, c.created)),
		hint: hint,
	}
}

func noAttempt(kind candidateKind, q Query, found []candidate) error {
	var have []string
	for _, c := range found {
		have = append(have, fmt.Sprint(c.attempt))
	}
	return &Error{
		Code: codes.NotFound,
		text: fmt.Sprintf("%s %q has no attempt %d", kind.name, q.Ref, *q.Attempt),
		hint: "there is attempt " + strings.Join(have, ", "),
	}
}

// age is a short duration such as 5m or 3d.
func age(now time.Time, created int64) string {
	if created <= 0 {
		return "?"
	}
	switch d := now.Sub(time.Unix(0, created)); {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// clean keeps what a runtime sent from driving the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if isControl(r) || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
