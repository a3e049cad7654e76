package shellwords

import "testing"

func TestQuote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"kube-system/etcd":        "kube-system/etcd",
		"registry:5000/a@sha256:": "registry:5000/a@sha256:",
		"":                        "''",
		"a b":                     "'a b'",
		"x;reboot":                "'x;reboot'",
		"$(id)`id`":               "'$(id)`id`'",
		"it's":                    `'it'\''s'`,
		"busy*":                   "'busy*'",
		"a\nb":                    "'a\nb'",
		"~root":                   "'~root'",
	} {
		if got := Quote(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := Quote("a b", "c"); got != "'a b' c" {
		t.Errorf("got %s", got)
	}
}
