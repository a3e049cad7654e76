package stream

import "testing"

func TestCompleteURL(t *testing.T) {
	tests := []struct {
		name, in, want string
		bad            bool
	}{
		{name: "absolute", in: "http://10.0.0.1:1234/exec/a?b=c", want: "http://10.0.0.1:1234/exec/a?b=c"},
		{name: "https", in: "https://node/exec/a", want: "https://node:443/exec/a"},
		{name: "no scheme and every address, as cri-dockerd says it", in: "//[::]:40123/cri/exec/t", want: "http://127.0.0.1:40123/cri/exec/t"},
		{name: "every IPv4 address", in: "http://0.0.0.0:1/x", want: "http://127.0.0.1:1/x"},
		{name: "no host", in: "//:7/x", want: "http://127.0.0.1:7/x"},
		{name: "path", in: "/cri/exec/t", want: "http://127.0.0.1:10250/cri/exec/t"},
		{name: "relative path", in: "cri/exec/t", want: "http://127.0.0.1:10250/cri/exec/t"},
		{name: "WebSocket scheme", in: "ws://h:1/x", want: "http://h:1/x"},
		{name: "IPv6", in: "http://[fd00::1]:5/x", want: "http://[fd00::1]:5/x"},
		{name: "empty", in: "", bad: true},
		{name: "another scheme", in: "ftp://h/x", bad: true},
		{name: "no URL", in: "http://[::1", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := completeURL(tt.in)
			if (err != nil) != tt.bad {
				t.Fatalf("got %v, %v", u, err)
			}
			if !tt.bad && u.String() != tt.want {
				t.Errorf("got %s, want %s", u, tt.want)
			}
		})
	}
}
