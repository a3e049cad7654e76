package output

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestMachineOutputEscapesWhatTerminalsObey(t *testing.T) {
	for text, want := range map[string]string{
		"plain 日本 🚀":     `"plain 日本 🚀"`,
		"\x7f\u009b31m":  `"\u007f\u009b31m"`,
		"\u202etxt.exe":  `"\u202etxt.exe"`,
		"tag\U000e0041.": `"tag\udb40\udc41."`,
	} {
		raw, err := compactJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		got := EscapeJSON(raw)
		if string(got) != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != text {
			t.Errorf("%q is read as %q, %v", text, back, err)
		}
	}
}

// TestYAMLEscapesWhatTerminalsObey checks keys and values, short and long, including texts that look like placeholders.
func TestYAMLEscapesWhatTerminalsObey(t *testing.T) {
	for _, text := range []string{
		"plain", "a: #b", "escaped-0-.", "\x7f", "\u009b31m", "\u202etxt.exe", "tag\U000e0041.", "\u2028", "two\nlines\u2066", "\"'\\\u202e",
		strings.Repeat("y", 127) + "\u202e", strings.Repeat("\u202e", 5000), "\x1b[2J\u202e\x00\u0085",
	} {
		want := map[string]any{text: []any{text, map[string]any{text: text}}, "other": text}
		raw, err := compactJSON(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := marshalYAML(raw)
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(string(got), func(r rune) bool { return r < ' ' && r != '\n' || harmful(r) }); i >= 0 {
			t.Errorf("%.40q: %q is not escaped", text, string(got)[i:min(len(got), i+4)])
		}
		var back map[string]any
		if err := yaml.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%.40q is read as %.200q, %v", text, back, err)
		}
	}
}
