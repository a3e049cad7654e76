package stream

import "testing"

func TestParseStatus(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"success", `{"metadata":{},"status":"Success"}`, ""},
		{"nothing", "", errNoStatus.Error()},
		{"space", " \n", errNoStatus.Error()},
		{"no JSON", "it broke", "it broke"},
		{"empty object", "{}", `the connection ended before the exit status arrived: server sent "{}"`},
		{"null", "null", `the connection ended before the exit status arrived: server sent "null"`},
		{"failure", `{"status":"Failure","message":"no such container"}`, "no such container"},
		{"the server's words before the runtime's", `{"status":"Failure","message":"Internal error occurred: error executing command in container: gone"}`, "gone"},
		{"status 3", exitJSON("3"), "command ended with status 3"},
		{"status 0 of a failure", exitJSON("0"), `unknown exit status "0": failed`},
		{"negative", exitJSON("-1"), "command ended with status 255"},
		{"too large", exitJSON("256"), "command ended with status 255"},
		{"no number", exitJSON("x"), `unknown exit status "x": failed`},
		{"no cause", `{"status":"Failure","reason":"NonZeroExitCode","message":"failed"}`, "failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := parseStatus([]byte(tt.in)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func exitJSON(code string) string {
	return `{"status":"Failure","reason":"NonZeroExitCode","message":"failed","details":{"causes":[{"reason":"ExitCode","message":"` + code + `"}]}}`
}
