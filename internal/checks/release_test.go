package checks

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// TestRelease: a faulty release is refused, a correct release is tagged after all checks.
func TestRelease(t *testing.T) {
	t.Parallel()
	script := test.Page(t, "hack/release.sh")
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
			write(t, filepath.Join(dir, "hack/engine.sh"), "#!/bin/sh\n", 0o700)
			write(t, filepath.Join(dir, "CHANGELOG.md"), c.changelog, 0o600)
			write(t, filepath.Join(dir, "Makefile"), c.makefile+"verify test race vm-test reproducible:\n", 0o600)
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

// TestPackageVersions has versions in their order, as dpkg has them.
func TestPackageVersions(t *testing.T) {
	t.Parallel()
	last := ""
	for _, c := range []struct{ version, epoch, want string }{
		{"f00dbeef", "1000000000", "0.0.0+20010909014640.gf00dbeef"},
		{"0badcafe", "1000000001", "0.0.0+20010909014641.g0badcafe"},
		{"0badcafe-dirty", "1000000001", "0.0.0+20010909014641.g0badcafe.dirty"},
		{"v0.9.0-rc1", "0", "0.9.0~rc1"},
		{"v0.9.0-rc1-2-gabc123", "0", "0.9.0~rc1+2.gabc123"},
		{"v0.9.0", "0", "0.9.0"},
		{"v0.9.0-dirty", "0", "0.9.0+dirty"},
		{"v0.9.1-3-gabc123", "0", "0.9.1+3.gabc123"},
		{"v0.10.0", "0", "0.10.0"},
	} {
		out, err := shell(t, "", nil, "hack/package-version.sh", c.version, c.epoch)
		if got := strings.TrimSpace(out); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.version, got, err, c.want)
		}
		if _, err := exec.LookPath("dpkg"); err == nil && last != "" {
			if out, err := shell(t, "", nil, "dpkg", "--compare-versions", last, "lt", c.want); err != nil {
				t.Errorf("%s is not before %s: %s", last, c.want, out)
			}
		}
		last = c.want
	}
}
