package suggest

import "testing"

func TestClosest(t *testing.T) {
	words := []string{"logs", "name", "namespace", "no-trunc", "quiet", "state"}
	for misspelt, want := range map[string]string{
		"nmae":      "name",
		"namespce":  "namespace",
		"sate":      "state",
		"NAME":      "",
		"x":         "",
		"bogus":     "",
		"something": "",
		"name":      "name",
	} {
		if got := Closest(misspelt, words); got != want {
			t.Errorf("Closest(%q) = %q, want %q", misspelt, got, want)
		}
	}
}

func TestClosestLeavesTheCandidatesAlone(t *testing.T) {
	words := []string{"b", "a"}
	Closest("c", words)
	if words[0] != "b" {
		t.Errorf("candidates were sorted in place: %q", words)
	}
}
