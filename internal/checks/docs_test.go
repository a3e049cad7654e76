package checks

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/test"
)

// pages lists all that people read about the project.
func pages(t *testing.T) []string {
	t.Helper()
	inDocs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	atTop, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(inDocs, atTop...)
}

// TestEveryPromiseNamesATest checks that each test and script named by a page or for `make vm-test` exists, that SECURITY.md names a test in
// each row, and that internal/reliability/faults.md names one for each row of docs/reliability.md, in its order.
func TestEveryPromiseNamesATest(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(test.Page(t, path), -1) {
			tests[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(pages(t), "hack/vmtest/tests", "internal/reliability/faults.md") {
		text := test.Page(t, name)
		for _, test := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(text, -1) {
			if !tests[test] {
				t.Errorf("%s names %s, which does not exist", name, test)
			}
		}
		for _, m := range regexp.MustCompile("`((?:cri|docker|containerd|plain)/[a-z_]+)`").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("testdata/script", m[1]+".txtar")); err != nil {
				t.Errorf("%s names a script that does not exist: %v", name, err)
			}
		}
	}
	named := regexp.MustCompile("(Test|Fuzz)[A-Z]|`[a-z]+/[a-z_]+`")
	hostile := cells(test.Page(t, "SECURITY.md"))
	if len(hostile) < 30 {
		t.Errorf("SECURITY.md has only %d rows", len(hostile))
	}
	for _, row := range hostile {
		if len(row) != 3 || !named.MatchString(row[2]) {
			t.Errorf("no test is named in %s", row)
		}
	}
	for _, title := range []string{"Endpoint and engine", "Requests cut short", "Disks, descriptors, sizes"} {
		rows := func(page string) [][]string {
			_, section, _ := strings.Cut(test.Page(t, page), "\n## "+title+"\n")
			section, _, _ = strings.Cut(section, "\n## ")
			return cells(section)
		}
		faults, tested := len(rows("docs/reliability.md")), rows("internal/reliability/faults.md")
		if faults < 16 || faults != len(tested) {
			t.Errorf("internal/reliability/faults.md has %d rows for %d of %q", len(tested), faults, title)
		}
		for _, row := range tested {
			if !named.MatchString(row[len(row)-1]) {
				t.Errorf("no test is named in %q of %q", row, title)
			}
		}
	}
}

// cells returns the columns of each row of the tables in a text, without their heads.
func cells(text string) (rows [][]string) {
	for _, row := range regexp.MustCompile(`(?m)(?:^\|[ -].*\|\n)+`).FindAllString(text, -1) {
		for i, line := range strings.Split(strings.TrimSpace(row), "\n") {
			if i > 1 {
				rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
			}
		}
	}
	return rows
}

// quoted lists what a text has in code spans.
func quoted(text string) (spans []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		spans = append(spans, m[1])
	}
	return spans
}

// declared returns the doc comments of what a Go file declares, by name; a method is Type.Method.
func declared(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Error(err)
		return nil
	}
	docs := map[string]string{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				name = fmt.Sprint(receiver) + "." + name
			}
			docs[name] = d.Doc.Text()
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					docs[s.Name.Name] = d.Doc.Text() + s.Doc.Text()
				}
			}
		}
	}
	return docs
}

// TestKubeletPageNamesWhatExists checks docs/kubelet.md: each file and identifier exists, and the comment of what
// stands for a name of the kubelet or dockershim has that name, so that a search finds it.
func TestKubeletPageNamesWhatExists(t *testing.T) {
	rows := cells(test.Page(t, "docs/kubelet.md"))
	if len(rows) < 34 {
		t.Errorf("docs/kubelet.md has only %d rows", len(rows))
	}
	for _, row := range rows {
		if len(row) != 3 {
			t.Fatalf("docs/kubelet.md: %d columns in %v", len(row), row)
		}
		here := quoted(row[1])
		if row[1] == "none" {
			continue
		}
		if len(here) < 2 {
			t.Errorf("%s: no file and identifier in %q", row[0], row[1])
			continue
		}
		docs, comments := declared(t, here[0]), ""
		for _, name := range here[1:] {
			comment, ok := docs[name]
			if !ok {
				t.Errorf("%s: %s does not declare %s", row[0], here[0], name)
			}
			comments += comment
		}
		for _, name := range quoted(row[0]) {
			if !strings.Contains(comments, name) {
				t.Errorf("%s: the comment of %s does not have that name", name, row[1])
			}
		}
	}
}

// TestEveryFileOfThePagesExists checks every path that a page names.
func TestEveryFileOfThePagesExists(t *testing.T) {
	path := regexp.MustCompile(`^(?:main\.go|go\.mod|Makefile|(?:api|client|cmd|commands|docs|examples|hack|internal|kuberuntime|output|packaging|shim|testdata)/[a-z0-9_./*-]*)$`)
	for _, name := range pages(t) {
		for _, span := range quoted(test.Page(t, name)) {
			span, _, _ = strings.Cut(span, " ")
			if !path.MatchString(span) {
				continue
			}
			if found, err := filepath.Glob(span); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which does not exist", name, span)
			}
		}
	}
}

// TestArchitecturePageNamesWhatExists checks docs/architecture.md: each verb is on it once with its file, and each RPC is in a
// file or directory that it names.
func TestArchitecturePageNamesWhatExists(t *testing.T) {
	text := test.Page(t, "docs/architecture.md")
	section := func(title string) string {
		_, s, ok := strings.Cut(text, "\n## "+title+"\n")
		if !ok {
			t.Errorf("there is no section %q", title)
		}
		s, _, _ = strings.Cut(s, "\n## ")
		return s
	}
	table := test.Page(t, "commands/app.go")
	var named []string
	for _, row := range cells(section("From a verb to its file")) {
		// A row is a directory and its verbs. The name before a colon is the file of the following verbs.
		for part := range strings.SplitSeq(row[1], "; ") {
			file, list, ok := strings.Cut(part, ": ")
			if !ok {
				file, list = "", part
			}
			for verb := range strings.SplitSeq(list, ", ") {
				named = append(named, verb)
				path := strings.Trim(row[0], "`") + cmp.Or(strings.Trim(file, "`"), strings.ReplaceAll(verb, "-", "_")+".go")
				constructor := regexp.MustCompile(`\.(New\w+), "` + verb + `"`).FindStringSubmatch(table)
				if constructor == nil || !strings.Contains(test.Page(t, path), "\nfunc "+constructor[1]+"(") {
					t.Errorf("%s is not in %s", verb, path)
				}
			}
		}
	}
	want := verbs(t)
	slices.Sort(want)
	if slices.Sort(named); !slices.Equal(named, want) {
		t.Errorf("the page has the verbs\n%v, want\n%v", named, want)
	}
	var services strings.Builder
	for _, path := range quoted(section("From an RPC to its file")) {
		if strings.HasSuffix(path, "/") {
			path += "*.go"
		}
		files, err := filepath.Glob(path)
		if err != nil {
			t.Error(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				services.WriteString(test.Page(t, file))
			}
		}
	}
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		var rpcs []string
		for _, m := range d.Methods {
			rpcs = append(rpcs, m.MethodName)
		}
		for _, s := range d.Streams {
			rpcs = append(rpcs, s.StreamName)
		}
		for _, rpc := range rpcs {
			if !regexp.MustCompile(`(?m)^func \([^)]*\) ` + rpc + `\(`).MatchString(services.String()) {
				t.Errorf("%s is in no file or directory of the page", rpc)
			}
		}
	}
}

// TestPagesExistInALimit checks that docs, without what is generated, can be read in an afternoon.
func TestPagesExistInALimit(t *testing.T) {
	all, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, name := range all {
		size += len(test.Page(t, name))
	}
	if limit := 80_000; size > limit {
		t.Errorf("docs/*.md have %d bytes, limit %d: shorten some", size, limit)
	}
}

// TestTemplatesExist checks that the forms for issues can be read, and that what they and the template for changes
// name exists.
func TestTemplatesExist(t *testing.T) {
	forms, err := filepath.Glob(".github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(forms) < 4 {
		t.Fatalf("forms: %v, %v", forms, err)
	}
	var text strings.Builder
	for _, name := range append(forms, ".github/PULL_REQUEST_TEMPLATE.md") {
		text.WriteString(test.Page(t, name))
		if filepath.Ext(name) != ".yml" || filepath.Base(name) == "config.yml" {
			continue
		}
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID   string
				Attributes struct {
					Label, Description, Render string
					Options                    []string
				}
				Validations struct{ Required bool }
			}
		}
		if err := yaml.UnmarshalStrict([]byte(test.Page(t, name)), &form); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, field := range form.Body {
			if !slices.Contains([]string{"textarea", "input", "dropdown"}, field.Type) || field.ID == "" || field.Attributes.Label == "" {
				t.Errorf("%s: %+v", name, field)
			}
		}
	}
	for _, m := range regexp.MustCompile(`make ([a-z]+)`).FindAllStringSubmatch(text.String(), -1) {
		if !strings.Contains(test.Page(t, "Makefile"), "\n"+m[1]+":") {
			t.Errorf("the Makefile has no target %s", m[1])
		}
	}
	for _, name := range regexp.MustCompile(`[\w/]+\.md`).FindAllString(text.String(), -1) {
		test.Page(t, name)
	}
	all := verbs(t)
	for _, m := range regexp.MustCompile(`crishim ([a-z]+)[,\n]`).FindAllStringSubmatch(text.String(), -1) {
		if !slices.Contains(all, m[1]) {
			t.Errorf("there is no command %s", m[1])
		}
	}
}

// verbs lists the verbs, which have a page each.
func verbs(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("docs/commands/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); name != "README" {
			names = append(names, name)
		}
	}
	return names
}
