package image

import (
	"errors"
	"strings"
	"testing"
)

// FuzzProgress: whatever an engine writes about a pull, an error in it is never
// taken for success, and nothing is told after it.
func FuzzProgress(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "[]", `{"id":"a","status":"Downloading","progressDetail":{"current":1,"total":2}}` + "\n" + `{"status":"done"}`,
		`{"status":"x"}{"error":"no such manifest"}{"status":"y"}`, `{"errorDetail":{"message":"denied"},"error":""}`, `{"errorDetail":null}`,
		`{"errorDetail":{"message":""}}`, `{"progressDetail":{"current":-1}}`, `{"status":`, `{"id":1}`, "<html>",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		after, broken := 0, `{"error":"broken"}`
		var failed *streamError
		err := readProgress(strings.NewReader(text), func(Progress) {})
		if errors.As(err, &failed) && failed.text == "" {
			t.Errorf("%q is an error without a word", text)
		}
		if err != nil {
			return
		}
		err = readProgress(strings.NewReader(text+"\n"+broken+`{"status":"more"}`), func(p Progress) {
			if p.Status == "more" {
				after++
			}
		})
		if !errors.As(err, &failed) || failed.text != "broken" || after > strings.Count(text, "more") {
			t.Errorf("%q and an error is %v, told %d times after it", text, err, after)
		}
	})
}

// FuzzMayMatch: no name that a filter means is passed over before both are taken
// apart.
func FuzzMayMatch(f *testing.F) {
	for _, name := range []string{"busybox:1.36", "docker.io/library/busybox:1", "reg.example:5000/a/b:v1", "busybox@" + digest, "<none>:<none>", "a/b@" + digest, "index.docker.io/library/a"} {
		for _, filter := range []string{name, "busybox", "library/busybox", "busybox:1@" + digest, "*/b", "b?sybox", `b\usybox`, "reg.example:5000/a/b", "", "a", "@", "/", ":", "docker.io/a", "index.docker.io/busybox"} {
			f.Add(name, filter)
		}
	}
	f.Fuzz(func(t *testing.T, name, filter string) {
		if nameMatches(name, engineReference(filter)) && !mayMatch(name, filter) {
			t.Errorf("%q means %q, and is passed over", filter, name)
		}
	})
}
