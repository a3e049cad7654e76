package host

import (
	"errors"
	"os"
	"path/filepath"
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
