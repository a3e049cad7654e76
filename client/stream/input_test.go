package stream

import (
	"bytes"
	"testing"
)

func TestParseDetachKeys(t *testing.T) {
	tests := []struct {
		in   string
		want []byte
		bad  bool
	}{
		{in: ""},
		{in: "a", want: []byte("a")},
		{in: DefaultDetachKeys, want: []byte{16, 17}},
		{in: "ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", want: []byte{0, 27, 28, 29, 30, 31}},
		{in: "ctrl-a,b,C", want: []byte{1, 'b', 'C'}},
		{in: "ctrl-", bad: true},
		{in: "ctrl-pq", bad: true},
		{in: "ctrl-1", bad: true},
		{in: "ab", bad: true},
		{in: "a,,b", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := parseDetachKeys(tt.in)
			if (err != nil) != tt.bad || !bytes.Equal(got, tt.want) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestDetachScanner(t *testing.T) {
	tests := []struct {
		name     string
		keys     string
		typed    []string
		want     string
		detached bool
	}{
		{"no keys", "", []string{"\x10\x11"}, "\x10\x11", false},
		{"at once", "ctrl-p,ctrl-q", []string{"ab\x10\x11cd"}, "ab", true},
		{"in two reads", "ctrl-p,ctrl-q", []string{"ab\x10", "\x11"}, "ab", true},
		{"not the sequence", "ctrl-p,ctrl-q", []string{"\x10", "x"}, "\x10x", false},
		{"first key twice", "ctrl-p,ctrl-q", []string{"\x10\x10\x11"}, "\x10", true},
		{"overlap", "a,a,b", []string{"aaab"}, "a", true},
		{"one key", "ctrl-x", []string{"12\x18"}, "12", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := parseDetachKeys(tt.keys)
			if err != nil {
				t.Fatal(err)
			}
			scanner := detachScanner{keys: keys}
			var sent []byte
			detached := false
			for _, typed := range tt.typed {
				var send []byte
				send, detached = scanner.scan([]byte(typed))
				sent = append(sent, send...)
			}
			if string(sent) != tt.want || detached != tt.detached {
				t.Errorf("got %q, %v", sent, detached)
			}
		})
	}
}

// FuzzDetachScanner checks that sent and held keys together equal the typed input.
func FuzzDetachScanner(f *testing.F) {
	f.Add("aab", "aaab")
	f.Add("aba", "ababa")
	f.Fuzz(func(t *testing.T, keys, typed string) {
		if keys == "" || len(keys) > 8 {
			return
		}
		scanner := detachScanner{keys: []byte(keys)}
		send, detached := scanner.scan([]byte(typed))
		whole := string(send) + keys[:scanner.held]
		at := bytes.Index([]byte(typed), []byte(keys))
		switch {
		case detached != (at >= 0):
			t.Errorf("keys %q in %q: detached is %v", keys, typed, detached)
		case detached && string(send) != typed[:at]:
			t.Errorf("keys %q in %q: sent %q", keys, typed, send)
		case !detached && whole != typed:
			t.Errorf("keys %q in %q: sent and held are %q", keys, typed, whole)
		}
	})
}
