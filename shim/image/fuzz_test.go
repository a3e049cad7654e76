package image

import (
	"errors"
	"strings"
	"testing"
)

// FuzzProgress checks that an error in an engine's progress stream is never missed and that nothing is reported after
// it.
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
