package checks

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryFileOfTheCommandLineUsesOnlyFilesBelow: a file of commands/cli can be understood from the files that it uses and
// the files that those use. No two files need each other.
func TestEveryFileOfTheCommandLineUsesOnlyFilesBelow(t *testing.T) {
	for _, dir := range []string{"commands/cli", "commands/cli/argv"} {
		if circle := circleIn(usesOf(t, dir)); circle != nil {
			t.Errorf("%s: each of these files uses the next: %s", dir, strings.Join(circle, ", "))
		}
	}
}

func TestCircles(t *testing.T) {
	names := func(names ...string) map[string]string {
		uses := map[string]string{}
		for _, name := range names {
			uses[name] = "f"
		}
		return uses
	}
	if got := circleIn(map[string]map[string]string{"a": names("b", "c"), "b": names("c")}); got != nil {
		t.Errorf("got %q, want none", got)
	}
	got := circleIn(map[string]map[string]string{"a": names("b"), "b": names("c"), "c": names("d", "b")})
	if want := []string{"b (f)", "c (f)"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// usesOf maps the files of a package to the files that declare the identifiers that they use, with one of these identifiers.
func usesOf(t *testing.T, dir string) map[string]map[string]string {
	t.Helper()
	tags, err := os.ReadFile("hack/tags")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-export", "-deps", "-trimpath", "-tags", strings.TrimSpace(string(tags)), "-json=ImportPath,Export", "./"+dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	paths, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	set := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	pkg, err := config.Check(dir, set, files, info)
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]map[string]string{}
	for ident, object := range info.Uses {
		from, to := filepath.Base(set.Position(ident.Pos()).Filename), filepath.Base(set.Position(object.Pos()).Filename)
		if object.Pkg() != pkg || from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]string{}
		}
		uses[from][to] = ident.Name
	}
	return uses
}

// circleIn returns files of which each uses the next and the last uses the first, with the identifiers, or nil.
func circleIn(uses map[string]map[string]string) []string {
	var path []string
	seen := map[string]bool{}
	var visit func(string) []string
	visit = func(file string) []string {
		if i := slices.Index(path, file); i >= 0 {
			circle := path[i:]
			named := make([]string, len(circle))
			for at, from := range circle {
				named[at] = from + " (" + uses[from][circle[(at+1)%len(circle)]] + ")"
			}
			return named
		}
		if seen[file] {
			return nil
		}
		seen[file] = true
		path = append(path, file)
		defer func() { path = path[:len(path)-1] }()
		for _, next := range slices.Sorted(maps.Keys(uses[file])) {
			if circle := visit(next); circle != nil {
				return circle
			}
		}
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		if circle := visit(file); circle != nil {
			return circle
		}
	}
	return nil
}
