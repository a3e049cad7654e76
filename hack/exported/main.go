// Command exported lists exported names and methods that no other package uses, and fails if there are any. Tests of
// other packages are users, as are external tests. make lint runs it.
//
// A type is used where another package names it or holds a value of it. A method is also used if an interface has its
// name. Exceptions are in exceptions.txt.
package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/crishim/crishim"

//go:embed exceptions.txt
var exceptions string

// A unit is a package as go list -test lists it: "p", "p [p.test]" with the tests of p, or "p_test [p.test]".
type unit struct {
	ImportPath, Dir, Export, ForTest, Name string
	GoFiles                                []string
	ImportMap                              map[string]string
	Standard                               bool
}

func (u *unit) ours() bool {
	return strings.HasPrefix(u.ImportPath, module) && !strings.HasSuffix(u.ImportPath, ".test")
}

func main() {
	found, err := unused()
	if err != nil {
		fmt.Fprintln(os.Stderr, "exported:", err)
		os.Exit(1)
	}
	if len(found) > 0 {
		fmt.Printf("only their own package uses these: unexport them\n%s\n", strings.Join(found, "\n"))
		os.Exit(1)
	}
}

func unused() ([]string, error) {
	units, err := list()
	if err != nil {
		return nil, err
	}
	c := &checker{
		files: token.NewFileSet(), units: units,
		declared: map[string]types.Object{}, used: map[string]bool{}, methods: map[string]bool{"Unwrap": true}, seen: map[*types.Package]bool{},
	}
	for _, u := range units {
		if !u.ours() {
			continue
		}
		if err := c.read(u); err != nil {
			return nil, err
		}
	}
	excepted := map[string]bool{}
	for line := range strings.Lines(exceptions) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" && name != "#" {
			excepted[name] = true
		}
	}
	var found []string
	for at, o := range c.declared {
		_, method := o.(*types.Func)
		method = method && o.(*types.Func).Signature().Recv() != nil
		name := path.Base(plain(o.Pkg().Path())) + "." + o.Name()
		if !c.used[at] && !excepted[name] && (!method || !c.methods[o.Name()]) {
			found = append(found, fmt.Sprintf("%s: %s", c.files.Position(o.Pos()), o.Name()))
		}
	}
	slices.Sort(found)
	return found, nil
}

type checker struct {
	files    *token.FileSet
	units    map[string]*unit
	declared map[string]types.Object // by position, like used
	used     map[string]bool
	methods  map[string]bool // names of the methods of interfaces
	seen     map[*types.Package]bool
}

// read type-checks a package from its source, and its imports from their export data.
func (c *checker) read(u *unit) error {
	var syntax []*ast.File
	for _, name := range u.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(u.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		syntax = append(syntax, file)
	}
	config := types.Config{Importer: importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(c.units[cmp.Or(u.ImportMap[path], path)].Export)
	})}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	pkg, err := config.Check(u.ImportPath, c.files, syntax, info)
	if err != nil {
		return err
	}
	c.interfaces(pkg)
	for _, o := range info.Uses {
		c.use(pkg, o)
		c.hold(pkg, o.Type())
	}
	for _, o := range info.Defs {
		if o == nil {
			continue
		}
		c.hold(pkg, o.Type())
		if u.ForTest == "" && o.Exported() && declares(pkg, o) && !strings.HasSuffix(c.files.Position(o.Pos()).Filename, ".pb.go") {
			c.declared[c.key(o)] = o
		}
	}
	for _, t := range info.Types {
		c.hold(pkg, t.Type)
	}
	return nil
}

// declares reports whether o is declared at package level or is a method of a type that is.
func declares(pkg *types.Package, o types.Object) bool {
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		return !types.IsInterface(f.Signature().Recv().Type())
	}
	return o.Parent() == pkg.Scope() && o.Name() != "main"
}

func (c *checker) use(from *types.Package, o types.Object) {
	if o.Pkg() != nil && plain(o.Pkg().Path()) != plain(from.Path()) {
		c.used[c.key(o)] = true
	}
}

// hold marks the types that a value in package from consists of.
func (c *checker) hold(from *types.Package, t types.Type) {
	switch t := t.(type) {
	case *types.Named:
		c.use(from, t.Obj())
	case *types.Map:
		c.hold(from, t.Key())
		c.hold(from, t.Elem())
	case interface{ Elem() types.Type }:
		c.hold(from, t.Elem())
	case *types.Signature:
		c.hold(from, t.Params())
		c.hold(from, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			c.hold(from, v.Type())
		}
	case *types.Interface:
		for m := range t.Methods() {
			c.methods[m.Name()] = true
		}
	}
}

// interfaces collects the methods of the interfaces of pkg and of all that it imports.
func (c *checker) interfaces(pkg *types.Package) {
	if c.seen[pkg] {
		return
	}
	c.seen[pkg] = true
	for _, name := range pkg.Scope().Names() {
		if t, ok := pkg.Scope().Lookup(name).Type().Underlying().(*types.Interface); ok {
			c.hold(pkg, t)
		}
	}
	for _, imported := range pkg.Imports() {
		c.interfaces(imported)
	}
}

// key identifies an object in all variants of its package, whether read from source or from export data, which has no columns.
func (c *checker) key(o types.Object) string {
	at := c.files.Position(o.Pos())
	return fmt.Sprintf("%s/%s:%d %s", plain(o.Pkg().Path()), filepath.Base(at.Filename), at.Line, o.Name())
}

func plain(importPath string) string {
	importPath, _, _ = strings.Cut(importPath, " ")
	return importPath
}

func list() (map[string]*unit, error) {
	tags, err := os.ReadFile("hack/tags")
	if err != nil {
		return nil, err
	}
	command := exec.Command("go", "list", "-trimpath", "-tags", strings.TrimSpace(string(tags)), "-test", "-deps", "-export", "-json", "./...")
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	units := map[string]*unit{}
	decoder := json.NewDecoder(out)
	for {
		u := &unit{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return units, command.Wait()
		} else if err != nil {
			return nil, err
		}
		units[u.ImportPath] = u
	}
}
