package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOOMScoreLearnsOnce(t *testing.T) {
	t.Parallel()
	var o OOMScore
	if got := o.Allowed(-998); got != -998 {
		t.Errorf("at first: got %d", got)
	}
	for name, c := range map[string]struct {
		asked int
		err   error
	}{
		"a success":         {-998, nil},
		"another failure":   {-998, errors.New("no space left")},
		"a positive score":  {500, errors.New("oom_score_adj")},
		"the neutral score": {0, errors.New("can't get final child's PID from pipe: EOF")},
	} {
		if o.Refused(c.asked, c.err) {
			t.Errorf("%s was taken for a refusal", name)
		}
	}
	if !o.Refused(-998, errors.New("write /proc/self/oom_score_adj: permission denied")) || o.Allowed(-998) != 0 || o.Allowed(3) != 3 {
		t.Error("a refusal was not remembered")
	}
}

func TestNetNS(t *testing.T) {
	t.Parallel()
	if got, _ := NetNS("x", "/proc/self/ns/net", 0); got != "/proc/self/ns/net" {
		t.Errorf("the engine's file: got %q", got)
	}
	file := t.TempDir() + "/net"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := NetNS("x", file, 0); got != "" {
		t.Errorf("a file that is no namespace: got %q", got)
	}
	for _, id := range []string{"no such container", "/", strings.Repeat("0", 64)} {
		if got, _ := NetNS(id, "", os.Getpid()); got != "" {
			t.Errorf("a stranger's process as of %q: got %q", id, got)
		}
	}
}

func TestOOMScoreAsksOnceWhatIsKnown(t *testing.T) {
	t.Parallel()
	asked := 0
	o := OOMScore{Known: func() bool { asked++; return true }}
	if got := o.Allowed(5); got != 5 || asked != 0 {
		t.Errorf("a positive score: got %d after %d questions", got, asked)
	}
	for range 2 {
		if got := o.Allowed(-998); got != 0 {
			t.Errorf("got %d, want 0", got)
		}
	}
	if asked != 1 {
		t.Errorf("got %d questions, want one", asked)
	}
}

func TestLacks(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]bool{
		"Name:\tx\nCapBnd:\t000001ffffffffff\n": false,
		"Name:\tx\nCapBnd:\t00000000a80425fb\n": true,
		"CapBnd:\tnonsense\n":                   false,
		"":                                      false,
	} {
		if got := lacks(status, capSysResource); got != want {
			t.Errorf("%q: got %v, want %v", status, got, want)
		}
	}
	if EngineLacksResource("/no/such/socket") {
		t.Error("an engine that is not there was judged")
	}
}

func TestGivenCapabilities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status, last string
		want         string
	}{
		"all":             {"CapBnd:\t000001ffffffffff\n", "40\n", ""},
		"all but one":     {"CapBnd:\t000000000000001d\n", "4\n", "CHOWN DAC_READ_SEARCH FOWNER FSETID"},
		"an older kernel": {"CapBnd:\t0000003fffffffff\n", "37\n", ""},
		"a newer kernel":  {"CapBnd:\t000003ffffffffff\n", "41\n", ""},
		"not a kernel":    {"CapBnd:\t0000000000000000\n", "many", ""},
		"no set":          {"Name:\tx\n", "40\n", ""},
	} {
		if got := strings.Join(given(tc.status, tc.last), " "); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if got := EngineCapabilities("/no/such/socket"); got != nil {
		t.Errorf("an engine that is not there can give %v", got)
	}
}

func TestAppArmorLoaded(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "profiles")
	if err := os.WriteFile(list, []byte("docker-default (enforce)\n/usr/bin/man (complain)\nodd one (kill)\nhalf\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for profile, want := range map[string]bool{
		"docker-default": true, "/usr/bin/man": true, "odd one": true, "half": false, "docker": false, "": false, ":ns:p": true, "a//&b": true,
	} {
		if got := appArmorLoadedIn(list, profile); got != want {
			t.Errorf("%q: got %v", profile, got)
		}
	}
	if !appArmorLoadedIn(filepath.Join(t.TempDir(), "none"), "x") {
		t.Error("a list that is not there says that a profile is not")
	}
}
