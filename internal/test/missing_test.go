package test

import (
	"fmt"
	"testing"
)

type recorder struct {
	testing.TB
	end string
}

func (*recorder) Helper()                       {}
func (r *recorder) Skipf(f string, args ...any) { r.end = "skipped: " + fmt.Sprintf(f, args...) }
func (r *recorder) Fatalf(f string, args ...any) {
	r.end = "failed: " + fmt.Sprintf(f, args...)
	panic(r)
}

func TestMissing(t *testing.T) {
	for require, want := range map[string]string{
		"":  "skipped: no sshd",
		"1": "failed: with CRISHIM_REQUIRE_ENGINE=1 this test has to run: no sshd",
	} {
		t.Setenv("CRISHIM_REQUIRE_ENGINE", require)
		r := &recorder{}
		func() {
			defer func() { _ = recover() }()
			Missing(r, "no %s", "sshd")
		}()
		if r.end != want {
			t.Errorf("%q: got %q, want %q", require, r.end, want)
		}
	}
}
