package top

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/crishim/crishim/internal/test"
)

// masked matches digits, because times and figures of a screen vary.
var masked = regexp.MustCompile(`\d`)

// TestScreens compares the screens of three terminal sizes. No line may be wider than the terminal.
func TestScreens(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {132, 30}, {220, 50}} {
		m, r := newView(t, size.width, size.height)
		r.text = "line of a log\n"
		screens := shown(m)
		types(m, "jj/shop")
		screens += "\n" + shown(m)
		types(m, "enter", "l")
		send(m, pageTick{m.page.id})
		screens += "\n" + shown(m)
		types(m, "esc", "?")
		screens += "\n" + shown(m) + "\n"
		for line := range strings.Lines(screens) {
			if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > size.width {
				t.Errorf("%d columns on %d: %s", w, size.width, line)
			}
		}
		if rows := strings.Count(m.View().Content, "\n") + 1; rows != size.height {
			t.Errorf("%d rows on %d", rows, size.height)
		}
		var trimmed strings.Builder
		for line := range strings.Lines(screens) {
			trimmed.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
		test.Golden(t, fmt.Sprintf("screen-%dx%d", size.width, size.height), masked.ReplaceAllString(trimmed.String(), "9"))
	}
	for _, tiny := range []struct{ width, height int }{{1, 1}, {5, 3}, {20, 5}, {60, 17}} {
		m, _ := newView(t, tiny.width, tiny.height)
		for _, keys := range []string{"G", "/x", "enter", "l", "esc", "x"} {
			types(m, keys)
			for line := range strings.Lines(shown(m)) {
				if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > tiny.width {
					t.Errorf("%d columns on %d: %q", w, tiny.width, line)
				}
			}
		}
	}
}
