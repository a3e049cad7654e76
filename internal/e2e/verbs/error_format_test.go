package verbs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestErrorFormat: with --error-format=json each error is a line with a code that scripts may
// rely on, wherever the flag stands, and the status is the same as without.
func TestErrorFormat(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for _, test := range []struct {
		line  string
		codes []string
	}{
		{"pss", []string{"usage"}},
		{"ps --nosuch", []string{"usage"}},
		{"ps -o nosuch", []string{"usage"}},
		{"inspect a//b", []string{"usage"}},
		{"apply -f /nonexistent.yaml", []string{"invalid_input"}},
		{"inspect nosuch", []string{"not_found"}},
		{"rm nosuch other", []string{"not_found", "not_found"}},
		{"-r unix:///nonexistent.sock ps", []string{"unavailable"}},
		{"exec web/nginx nosuch", []string{"command_not_found"}},
		{"ps", nil},
	} {
		args := strings.Fields(test.line)
		plain := c.run(args...)
		for _, line := range [][]string{append([]string{"--error-format=json"}, args...), append([]string{args[0], "--error-format", "json"}, args[1:]...)} {
			if strings.HasPrefix(line[0], "-r") {
				continue
			}
			r := c.run(line...)
			if r.code != plain.code || r.out != plain.out {
				t.Errorf("%q: exit %d, want %d", line, r.code, plain.code)
			}
			var codes []string
			for text := range strings.Lines(r.err) {
				var got struct{ Error failureFields }
				if err := json.Unmarshal([]byte(text), &got); err != nil {
					t.Errorf("%q: %v in %q", line, err, text)
				}
				if !strings.Contains(plain.err, "crishim: "+got.Error.Message+"\n") {
					t.Errorf("%q: message %q, want what is in %q", line, got.Error.Message, plain.err)
				}
				if got.Error.Hint != "" && !strings.Contains(plain.err, "hint: "+strings.ReplaceAll(got.Error.Hint, "\n", "\nhint: ")) {
					t.Errorf("%q: hint %q, want what is in %q", line, got.Error.Hint, plain.err)
				}
				codes = append(codes, got.Error.Code)
			}
			if strings.Join(codes, " ") != strings.Join(test.codes, " ") {
				t.Errorf("%q: codes %q, want %q", line, codes, test.codes)
			}
		}
	}
}

type failureFields struct{ Code, Message, Hint, Operation, Endpoint string }
