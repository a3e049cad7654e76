package checks

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/internal/test"
)

// shell runs a program of the repository with these settings in addition.
func shell(t *testing.T, dir string, environment []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// write makes a file of a test with the directories above it.
func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// TestInstall looks at what make install and the packages have in them.
func TestInstall(t *testing.T) {
	t.Parallel()
	self := binary(t)
	root := t.TempDir()
	program := filepath.Join(t.TempDir(), "program")
	write(t, program, "#!/bin/sh\n", 0o700)
	settings := filepath.Join(root, "etc/crishim/serve.yaml")
	write(t, settings, "# mine\n", 0o600)
	if out, err := shell(t, "", []string{"DESTDIR=" + root, "PREFIX=/usr", "RUN=" + self}, "hack/install.sh", program); err != nil || out != "" {
		t.Fatalf("%s, %v", out, err)
	}
	if got := test.Page(t, settings); got != "# mine\n" {
		t.Errorf("the settings that were there are %q", got)
	}

	// The verbs have a page of documentation each too.
	want := []string{
		"usr/bin/crishim", "usr/lib/systemd/system/crishim-sync@.service", "usr/lib/systemd/system/crishim.service", "usr/lib/systemd/system/crishim.socket",
		"usr/share/bash-completion/completions/crishim", "usr/share/crishim/crictl.bash", "usr/share/fish/vendor_completions.d/crishim.fish",
		"usr/share/zsh/site-functions/_crishim", "usr/share/man/man1/crishim.1.gz",
	}
	for _, verb := range verbs(t) {
		want = append(want, "usr/share/man/man1/crishim-"+verb+".1.gz")
	}
	var got []string
	err := filepath.WalkDir(filepath.Join(root, "usr"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if !strings.HasPrefix(name, "usr/share/doc/crishim/") {
			got = append(got, name)
		}
		if info, err := d.Info(); err != nil || info.Size() == 0 {
			t.Errorf("%s is empty, %v", name, err)
		}
		return nil
	})
	slices.Sort(want)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("want(-) got(+): %s, %v", diff, err)
	}

	f, err := os.Open(filepath.Join(root, "usr/share/man/man1/crishim-exec.1.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || !strings.Contains(string(text), `.TH CRISHIM-EXEC "1" "2`) {
		t.Errorf("the page of exec: got %.60q, %v", text, err)
	}
	if text := test.Page(t, filepath.Join(root, "usr/share/crishim/crictl.bash")); !strings.Contains(text, " crictl") {
		t.Errorf("the completion for crictl is for another name: %s", text)
	}
	t.Run("units", func(t *testing.T) { checkUnits(t, root) })
}

// checkUnits has systemd look for mistakes in the units, and at how much they can do.
func checkUnits(t *testing.T, root string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		test.Missing(t, "no systemd-analyze")
	}
	// All that is wrong with how serve is started is what is added.
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/crishim (serve .*)$`).FindStringSubmatch(test.Page(t, filepath.Join(root, "usr/lib/systemd/system/crishim.service")))
	if start == nil {
		t.Fatal("crishim.service starts something else")
	}
	if out, err := shell(t, "", nil, slices.Concat([]string{binary(t)}, strings.Fields(start[1]), []string{"--log-level", "none of those"})...); err == nil || !strings.Contains(out, "--log-level") {
		t.Errorf("%s: got %s, %v", start[1], out, err)
	}
	// Units that every system has, and others refer to.
	for _, unit := range []string{"sysinit", "basic", "shutdown", "sockets", "multi-user", "network-online"} {
		write(t, filepath.Join(root, "usr/lib/systemd/system", unit+".target"), "[Unit]\nDescription="+unit+"\n", 0o600)
	}
	for _, unit := range []string{"crishim.socket", "crishim.service", "crishim-sync@etc-pods.service"} {
		if out, err := shell(t, "", nil, analyze, "--root="+root, "--man=no", "--recursive-errors=no", "verify", unit); err != nil || out != "" {
			t.Errorf("verify %s: %s, %v", unit, out, err)
		}
	}
	if out, err := shell(t, "", nil, analyze, "--root="+root, "--offline=yes", "--no-pager", "--threshold=65", "security", "crishim.service"); err != nil {
		t.Errorf("crishim.service is exposed more than it has to be: %v\n%s", err, out)
	}
}

// TestPurgeKeepsWhatIsMounted: a sub path of a hostPath volume is a bind mount, of the same file system, below a directory that a
// link may lead to. A purge removes nothing then, and what the link leads to once it is unmounted.
func TestPurgeKeepsWhatIsMounted(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		test.Missing(t, "no mount namespace: %v", err)
	}
	dirs := []string{"var/lib/crishim", "var/log/crishim", "run/crishim", "var/lib/cni/cache/crishim"}
	for _, linked := range []string{"", "var", "var/lib"} {
		for _, dir := range dirs {
			t.Run("link of "+linked+", mount below "+dir, func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				for _, dir := range dirs {
					write(t, filepath.Join(root, dir, "pods/x/data"), "", 0o600)
				}
				users := filepath.Join(root, "srv/of users")
				write(t, filepath.Join(users, "precious"), "", 0o600)
				if linked != "" {
					elsewhere := filepath.Join(root, "disk 2")
					if err := errors.Join(os.Rename(filepath.Join(root, linked), elsewhere), os.Symlink(elsewhere, filepath.Join(root, linked))); err != nil {
						t.Fatal(err)
					}
				}
				at := filepath.Join(root, dir, "pods/x/volume-subpaths/data/main/0")
				if err := os.MkdirAll(at, 0o700); err != nil {
					t.Fatal(err)
				}
				environment := []string{"DPKG_ROOT=" + root, "DATA=" + users, "AT=" + at, "PATH=" + os.Getenv("PATH")}
				out, err := shell(t, "", environment, "unshare", "-m", "sh", "-ec", `mount --bind "$DATA" "$AT"; sh packaging/postremove.sh purge`)
				below, _ := filepath.EvalSymlinks(at)
				if err != nil || strings.Count(out, " stays: "+below+" is mounted\n") != len(dirs) {
					t.Errorf("with a mount: got %q, %v", out, err)
				}
				for _, dir := range dirs {
					if _, err := os.Stat(filepath.Join(root, dir, "pods/x/data")); err != nil {
						t.Error(err)
					}
				}
				if out, err := shell(t, "", environment, "sh", "packaging/postremove.sh", "purge"); err != nil || out != "" {
					t.Errorf("without a mount: got %q, %v", out, err)
				}
				if _, err := os.Stat(filepath.Join(users, "precious")); err != nil {
					t.Error(err)
				}
				if left, _ := filepath.Glob(filepath.Join(root, "*/*/crishim")); len(left) > 0 {
					t.Errorf("%v are left", left)
				}
			})
		}
	}
}

// TestMaintainerScripts runs the scripts of the packages on a system of their own, on one
// with systemd and alternatives and on one with neither.
func TestMaintainerScripts(t *testing.T) {
	t.Parallel()
	const (
		alternative = "update-alternatives --install /usr/bin/crictl crictl /usr/bin/crishim 10 --slave /usr/share/bash-completion/completions/crictl crictl-completion /usr/share/crishim/crictl.bash\n"
		stop        = "systemctl stop crishim.socket crishim.service crishim-sync@*.service\n"
		disable     = "systemctl --quiet disable crishim.socket crishim.service crishim-sync@.service\nupdate-alternatives --remove crictl /usr/bin/crishim\n"
		reload      = "systemctl daemon-reload\n"
		podsStay    = "crishim: pods stay in the Docker engine, and their logs in /var/log/pods: docker ps -a --filter label=io.kubernetes.docker.type\n"
		restart     = "systemctl try-restart crishim.service crishim-sync@*.service\n"
	)
	for name, c := range map[string]struct {
		script, argument string
		bare             bool   // neither systemd nor alternatives
		offline          bool   // a tree whose systemd is not running
		did, said        string // ROOT stands for the root of the system
		state            bool   // still there at the end
	}{
		"installed or upgraded":    {script: "postinstall", argument: "configure", did: alternative + reload + restart, state: true},
		"installed on a bare one":  {script: "postinstall", argument: "configure", bare: true, state: true},
		"about to be upgraded":     {script: "preremove", argument: "upgrade", state: true},
		"about to be upgraded rpm": {script: "preremove", argument: "1", state: true},
		"about to be removed": {
			script: "preremove", argument: "remove", did: stop + disable, said: podsStay, state: true,
		},
		"about to be removed from a tree": {script: "preremove", argument: "remove", offline: true, did: disable, said: podsStay, state: true},
		"about to be removed from a bare one": {
			script: "preremove", argument: "0", bare: true,
			said: podsStay, state: true,
		},
		"removed": {
			script: "postremove", argument: "remove", did: reload, state: true,
			said: "crishim: ROOT/var/lib/crishim stays, with volumes and logs of pods\ncrishim: ROOT/var/log/crishim stays, with volumes and logs of pods\n",
		},
		"replaced":             {script: "postremove", argument: "upgrade", did: reload, state: true},
		"purged":               {script: "postremove", argument: "purge", did: reload},
		"purged on a bare one": {script: "postremove", argument: "purge", bare: true},
		"purged from a tree":   {script: "postremove", argument: "purge", offline: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			bin := filepath.Join(root, "bin")
			write(t, filepath.Join(root, "usr/bin/crishim"), "#!/bin/sh\n[ \"$*\" = '-r docker:// pods -q' ] && echo 0123\n", 0o700)
			write(t, filepath.Join(root, "var/lib/crishim/pods/x"), "", 0o600)
			write(t, filepath.Join(root, "var/log/crishim/x"), "", 0o600)
			write(t, filepath.Join(root, "var/lib/cni/cache/crishim/x"), "", 0o600)
			for _, tool := range []string{"sh", "awk", "rm", "readlink", "timeout"} {
				path, err := exec.LookPath(tool)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(bin, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
					t.Fatal(err)
				}
			}
			done := filepath.Join(root, "done")
			write(t, done, "", 0o600)
			if !c.bare {
				if !c.offline {
					write(t, filepath.Join(root, "run/systemd/system/x"), "", 0o600)
				}
				record := "#!/bin/sh\necho \"${0##*/} $*\" >>" + done + "\n"
				write(t, filepath.Join(bin, "update-alternatives"), record, 0o700)
				write(t, filepath.Join(bin, "systemctl"), record, 0o700)
			}
			out, err := shell(t, "", []string{"PATH=" + bin, "DPKG_ROOT=" + root}, "packaging/"+c.script+".sh", c.argument)
			if want := strings.ReplaceAll(c.said, "ROOT", root); err != nil || out != want {
				t.Errorf("got %q, %v, want %q", out, err, want)
			}
			if diff := cmp.Diff(c.did, test.Page(t, done)); diff != "" {
				t.Errorf("want(-) got(+): %s", diff)
			}
			for _, dir := range []string{"var/lib/crishim", "var/log/crishim", "var/lib/cni/cache/crishim"} {
				if _, err := os.Stat(filepath.Join(root, dir)); (err == nil) != c.state {
					t.Errorf("%s: %v", dir, err)
				}
			}
		})
	}
}
