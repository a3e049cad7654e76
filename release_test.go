package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRelease tries what a release refuses, and that one that is fine gets its tag when
// everything has passed.
func TestRelease(t *testing.T) {
	t.Parallel()
	script := page(t, "hack/release.sh")
	for name, c := range map[string]struct {
		changelog, makefile string
		prepare             string
		want                string
		tagged              bool
	}{
		"a new version":   {changelog: "# Changes\n\n## v1.2.3\n\n- x\n", want: "release: v1.2.3 is in dist", tagged: true},
		"tagged already":  {changelog: "## v1.2.3\n", prepare: "git tag v1.2.3", want: "release: v1.2.3 is in dist", tagged: true},
		"no version":      {changelog: "## Unreleased\n\n## v1.2.3\n", want: `release: CHANGELOG.md begins with "Unreleased"`},
		"another commit":  {changelog: "## v1.2.3\n", prepare: "git tag v1.2.3; git commit -q --allow-empty -m more", want: "release: v1.2.3 is another commit", tagged: true},
		"changes":         {changelog: "## v1.2.3\n", prepare: "echo >>CHANGELOG.md", want: "release: there are changes that are not committed"},
		"a failing check": {changelog: "## v1.2.3\n", makefile: "verify:\n\tfalse\n", want: "make: ***"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "hack/release.sh"), script, 0o700)
			write(t, filepath.Join(dir, "CHANGELOG.md"), c.changelog, 0o600)
			write(t, filepath.Join(dir, "Makefile"), c.makefile+"verify test race reproducible:\n", 0o600)
			git := []string{
				"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a.example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.example",
				"MAKEFLAGS=", "MAKELEVEL=",
			}
			if out, err := shell(t, dir, git, "sh", "-ec", "git init -q; git add .; git commit -q -m first; "+c.prepare); err != nil {
				t.Fatalf("%s, %v", out, err)
			}
			out, err := shell(t, dir, git, "hack/release.sh")
			if !strings.Contains(out, c.want) || (err == nil) != strings.HasPrefix(c.want, "release: v1.2.3 is in dist") {
				t.Errorf("got %s, %v, want %q", out, err, c.want)
			}
			if tags, err := shell(t, dir, git, "git", "tag"); err != nil || (tags == "v1.2.3\n") != c.tagged {
				t.Errorf("tags: %q, %v", tags, err)
			}
		})
	}
}
