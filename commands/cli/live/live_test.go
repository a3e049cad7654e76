package live

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/screen"
)

// TestDisplay: each text replaces the text before it, on a terminal of twelve columns.
func TestDisplay(t *testing.T) {
	t.Parallel()
	var out test.Buffer
	_, _ = out.Write([]byte("$ crishim\n"))
	seen := func() string { return screen.Text(out.String(), 12) }
	d := Start(&out, 12)
	for _, tt := range []struct{ name, lines, want string }{
		{"first", "\x1b[31mone\x1b[m\n22\n", "one\n22"},
		{"cut where the terminal ends", "one\na line that is too long\n333\n", "one\na line that \n333"},
		{"fewer lines", "four\n", "four"},
		{"more than there are rows", strings.Repeat("x\n", usualHeight+7), strings.TrimSuffix(strings.Repeat("x\n", usualHeight-1), "\n")},
		{"the last", "end\nof it\n", "end\nof it"},
	} {
		if err := d.Show(tt.lines); err != nil {
			t.Fatal(err)
		}
		want := "$ crishim\n" + strings.ReplaceAll(tt.want, " \n", "\n")
		for end := time.Now().Add(20 * time.Second); seen() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: got\n%s\nwant\n%s\nwritten: %q", tt.name, seen(), want, out.String())
			}
		}
	}
	d.Close()
	if _, _ = out.Write([]byte("$ ")); seen() != "$ crishim\nend\nof it\n$" {
		t.Errorf("after the end: %q", seen())
	}
	// The output sets no mode that must be reset, and sends no query whose answer a shell would read.
	for _, no := range []string{"\x1b[?25l", "\x1b[?2004", "\x1b[?1049", "\x1b[>", "\x1b[=", "$p", " q", "\x1b[6n", "\x1b]"} {
		if i := strings.LastIndex(out.String(), no); i >= 0 && !(no == "\x1b[?25l" && strings.Contains(out.String()[i:], "\x1b[?25h")) {
			t.Errorf("%q in %q", no, out.String())
		}
	}
}

func TestErase(t *testing.T) {
	t.Parallel()
	var out test.Buffer
	for range 2 {
		d := Start(&out, 0)
		_ = d.Show("one\ntwo\n")
		for !strings.Contains(screen.Text(out.String(), 80), "two") {
			time.Sleep(time.Millisecond)
		}
		_, _ = out.Write([]byte("^C")) // as a terminal echoes the key that ends it
		d.Erase()
		if got := screen.Text(out.String(), 80); got != "" {
			t.Fatalf("got %q of %q", got, out.String())
		}
	}
}

// TestGone: Show returns the error of a terminal that is gone.
func TestGone(t *testing.T) {
	t.Parallel()
	d := Start(gone{}, 80)
	defer d.Close()
	for d.Show("one\n") == nil {
		time.Sleep(time.Millisecond)
	}
}

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, os.ErrClosed }
