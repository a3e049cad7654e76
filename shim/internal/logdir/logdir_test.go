package logdir

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]Place{
		"below":       {"/pods/a", "/pods/a/app/0.log"},
		"in it":       {"/pods/a", "/pods/a/0.log"},
		"deep":        {"/pods/a/", "/pods/a/b/c/0.log"},
		"elsewhere":   {"/pods/a", "/pods/ab/0.log"},
		"not noted":   {"", "/pods/a/app/0.log"},
		"all of it":   {"/", "/pods/a/0.log"},
		"not cleaned": {"/pods//a/.", "/pods/a/app/../app/0.log"},
	} {
		top := t.TempDir()
		if place.Base != "" {
			place.Base = top + place.Base
		}
		place.Path = top + place.Path
		if _, _, err := place.OpenExisting(); err == nil {
			t.Errorf("%s: a directory that is not there was opened", name)
		}
		dir, file, err := place.Open()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f, err := dir.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		dir.Close()
		if _, err := os.Stat(place.Path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Links that a container creates in its pod's log directory are not followed outside.
func TestLinksBelowTheLogDirectory(t *testing.T) {
	t.Parallel()
	base, outside := t.TempDir(), t.TempDir()
	for link, target := range map[string]string{"absolute": outside, "relative": "../" + filepath.Base(outside), "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
		for _, below := range []string{"0.log", "made/0.log"} {
			place := Place{base, filepath.Join(base, link, below)}
			if dir, _, err := place.Open(); err == nil {
				dir.Close()
				t.Errorf("%s: opened %s", place.Path, dir.Name())
			}
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
	if err := os.Mkdir(filepath.Join(base, "here"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("here", filepath.Join(base, "inside")); err != nil {
		t.Fatal(err)
	}
	dir, _, err := Place{base, filepath.Join(base, "inside", "0.log")}.Open()
	if err != nil {
		t.Fatalf("a link that stays inside: %v", err)
	}
	dir.Close()
	if err := os.Symlink(base, filepath.Join(outside, "pod")); err != nil {
		t.Fatal(err)
	}
	dir, _, err = Place{filepath.Join(outside, "pod"), filepath.Join(outside, "pod", "app", "0.log")}.Open()
	if err != nil {
		t.Fatalf("a log directory that is itself a link: %v", err)
	}
	dir.Close()
}
