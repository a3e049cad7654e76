package container

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSplitPath(t *testing.T) {
	cases := map[string]struct {
		arg, container, path string
		remote               bool
	}{
		"container":              {"web:/etc", "web", "/etc", true},
		"relative in container":  {"web:etc", "web", "etc", true},
		"pod and container":      {"ns/pod/web:/a:b", "ns/pod/web", "/a:b", true},
		"absolute":               {"/tmp/a:b", "", "/tmp/a:b", false},
		"relative with a colon":  {"./a:b", "", "./a:b", false},
		"plain name":             {"file", "", "file", false},
		"stream":                 {"-", "", "-", false},
		"no path":                {"web:", "web", "", true},
		"nothing before a colon": {":x", "", ":x", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			container, path, remote := splitPath(c.arg)
			if container != c.container || path != c.path || remote != c.remote {
				t.Errorf("got %q %q %v", container, path, remote)
			}
		})
	}
}

func TestSplitRemote(t *testing.T) {
	cases := map[string]struct{ from, dir, name string }{
		"file":            {"/etc/hosts", "/etc", "./hosts"},
		"in the root":     {"/bin", "/", "./bin"},
		"root":            {"/", "/", "."},
		"contents":        {"/etc/.", "/etc", "."},
		"trailing slash":  {"/etc/", "/", "./etc"},
		"relative":        {"etc/hosts", "/etc", "./hosts"},
		"like an option":  {"/x/--help", "/x", "./--help"},
		"above the root":  {"/../../etc", "/", "./etc"},
		"all of the root": {".", "/", "."},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if dir, base := splitRemote(c.from); dir != c.dir || base != c.name {
				t.Errorf("got %q %q, want %q %q", dir, base, c.dir, c.name)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	file, dir, contents := localSource{path: "f"}, localSource{path: "d", dir: true}, localSource{path: "d", dir: true, contents: true}
	cases := map[string]struct {
		source     localSource
		to         string
		isDir      bool
		dir, name  string
		impossible bool
	}{
		"file into directory":         {file, "/x", true, "/x", "base", false},
		"file under a name":           {file, "/x/y", false, "/x", "y", false},
		"file into what is not there": {file, "/x/", false, "", "", true},
		"directory into directory":    {dir, "/x", true, "/x", "base", false},
		"directory under a name":      {dir, "/x/y/", false, "/x", "y", false},
		"contents into directory":     {contents, "/x", true, "/x", ".", false},
		"contents under a name":       {contents, "/x/y", false, "/x", "y", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			into, as, err := place(c.source, "base", c.to, c.isDir)
			if into != c.dir || as != c.name || (err != nil) != c.impossible {
				t.Errorf("got %q %q %v", into, as, err)
			}
		})
	}
}

func TestDestination(t *testing.T) {
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "file", "dangling": "to-come", "twice": "dangling", "loop": "loop", "lost": "no/such", "here": "."} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(base, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("fifo", filepath.Join(base, "to-fifo")); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		to, base   string
		dir, name  string
		impossible bool
	}{
		"into a directory":         {"", "f", "", "f", false},
		"contents of a directory":  {"", ".", "", "", false},
		"under a new name":         {"new", "f", "", "new", false},
		"contents under a name":    {"new", ".", "", "new", false},
		"over a file":              {"file", "f", "", "file", false},
		"a file as a directory":    {"file/", "f", "", "", true},
		"below what is not there":  {"no/such", "f", "", "", true},
		"below what is a file":     {"file/x", "f", "", "", true},
		"new name, trailing slash": {"new/", "f", "", "new", false},
		"a link to a file":         {"link", "f", "", "file", false},
		"a link to a directory":    {"here", "f", "here", "f", false},
		"a link to a new file":     {"dangling", "f", "", "to-come", false},
		"a link to a link":         {"twice", "f", "", "to-come", false},
		"a link to itself":         {"loop", "f", "", "", true},
		"a link to nowhere":        {"lost", "f", "", "", true},
		"a FIFO":                   {"fifo", "f", "", "", true},
		"a link to a FIFO":         {"to-fifo", "f", "", "", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir, as, err := destination(base+"/"+c.to, c.base)
			if (err != nil) != c.impossible {
				t.Fatalf("got %q %q %v", dir, as, err)
			}
			if !c.impossible && (filepath.Clean(dir) != filepath.Join(base, c.dir) || as != c.name) {
				t.Errorf("got %q %q", dir, as)
			}
		})
	}
}
