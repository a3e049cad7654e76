package stream

import (
	"encoding/json"
	"errors"
	"testing"
)

// FuzzStatus checks that only an explicit success ends a session successfully, and that an exit status is in the valid
// range.
func FuzzStatus(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "[]", `"Success"`, `{"status":"Success"}`, `{"status":"success"}`, `{"status":"Failure"}`, "no such container",
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`,
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"0"}]}}`,
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"-1"},null]}}`,
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"99999999999999999999"}]}}`,
		`{"status":"Success"}{"status":"Failure"}`, `{"reason":"NonZeroExitCode"}`, `{"message":"Internal error occurred: "}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := parseStatus([]byte(text))
		if err == nil {
			var said map[string]any
			if json.Unmarshal([]byte(text), &said) != nil {
				t.Errorf("%q is a success", text)
			}
			return
		}
		if err.Error() == "" {
			t.Errorf("%q is an error without a word", text)
		}
		if exit := (&ExitError{}); errors.As(err, &exit) && (exit.Code < 1 || exit.Code > 255) {
			t.Errorf("%q is exit status %d", text, exit.Code)
		}
	})
}
