package stream

import (
	"testing"
)

func TestParsePort(t *testing.T) {
	tests := []struct {
		in   string
		want Port
		bad  bool
	}{
		{in: "80", want: Port{Local: 80, Remote: 80}},
		{in: "8080:80", want: Port{Local: 8080, Remote: 80}},
		{in: ":80", want: Port{Remote: 80}},
		{in: "0:80", want: Port{Remote: 80}},
		{in: "127.0.0.1:8080:80", want: Port{Address: "127.0.0.1", Local: 8080, Remote: 80}},
		{in: "localhost::80", want: Port{Address: "localhost", Remote: 80}},
		{in: "[::1]:8080:80", want: Port{Address: "::1", Local: 8080, Remote: 80}},
		{in: "[::1]::65535", want: Port{Address: "::1", Remote: 65535}},
		{in: "", bad: true},
		{in: ":", bad: true},
		{in: "0", bad: true},
		{in: "80:0", bad: true},
		{in: "80:", bad: true},
		{in: "65536", bad: true},
		{in: "-1:80", bad: true},
		{in: "+80", bad: true},
		{in: "http", bad: true},
		{in: "::1:8080:80", bad: true},
		{in: "[::1]:80", bad: true, want: Port{}},
		{in: "[nonsense]:1:2", bad: true},
		{in: ":8080:80", bad: true},
		{in: "18080:80:90", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParsePort(tt.in)
			if (err != nil) != tt.bad {
				t.Fatalf("got %+v, %v", got, err)
			}
			if !tt.bad && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if tt.bad {
				return
			}
			if again, err := ParsePort(got.String()); err != nil || again != got {
				t.Errorf("%s reads as %+v, %v", got, again, err)
			}
		})
	}
}

func FuzzParsePort(f *testing.F) {
	for _, s := range []string{"80", ":80", "a:1:2", "[::1]:1:2", "]:", "[:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePort(s)
		if err != nil {
			return
		}
		if again, err := ParsePort(p.String()); err != nil || again != p {
			t.Errorf("%q is %+v, which reads as %+v, %v", s, p, again, err)
		}
	})
}
