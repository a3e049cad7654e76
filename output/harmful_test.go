package output

import (
	"encoding/json"
	"testing"
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
		got := escapeHarmful(raw)
		if string(got) != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != text {
			t.Errorf("%q is read as %q, %v", text, back, err)
		}
	}
}
