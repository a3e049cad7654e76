package spdyframe

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pieces notes what arrives, write by write.
type pieces struct{ got []string }

func (p *pieces) Write(b []byte) (int, error) {
	p.got = append(p.got, string(b))
	return len(b), nil
}

func TestWriterSendsWholeFrames(t *testing.T) {
	short := "\x00\x00\x00\x01\x00\x00\x00\x02ab"
	empty := "\x00\x00\x00\x01\x01\x00\x00\x00"
	long := "\x00\x00\x00\x01\x00\x01\x00\x00" + string(bytes.Repeat([]byte("x"), 65536))
	cases := map[string]struct{ writes, want []string }{
		"nothing":              {nil, nil},
		"a piece at a time":    {[]string{short[:4], short[4:8], short[8:]}, []string{short}},
		"byte by byte":         {[]string{short[:1], short[1:5], short[5:9], short[9:]}, []string{short}},
		"without a body":       {[]string{empty[:4], empty[4:], ""}, []string{empty}},
		"two at once":          {[]string{short + empty}, []string{short + empty}},
		"one and a half":       {[]string{short + empty[:3], empty[3:]}, []string{short, empty}},
		"a long one":           {[]string{long[:4], long[4:8], long[8:]}, []string{long}},
		"an unfinished one":    {[]string{short[:9]}, nil},
		"unfinished by a byte": {[]string{long[:len(long)-1]}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := &pieces{}
			to := NewWriter(p)
			for _, w := range c.writes {
				if n, err := to.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("got %d, %v", n, err)
				}
			}
			if diff := cmp.Diff(c.want, p.got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
