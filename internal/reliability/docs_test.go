package reliability

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// root is the top of the repository.
const root = "../.."

// TestEveryPromiseNamesATest holds docs/reliability.md: each test and script that
// it names is where it says.
func TestEveryPromiseNamesATest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, found := "", 0
	for _, m := range regexp.MustCompile("scripts? `([a-z_/]+)`|`([a-z/]+)`|\\b((?:Test|Fuzz)[A-Z]\\w+)").FindAllStringSubmatch(string(text), -1) {
		script, folder, name := m[1], m[2], m[3]
		switch {
		case script != "":
			if matches, _ := filepath.Glob(filepath.Join(root, "testdata", "script", script+"*")); len(matches) == 0 {
				t.Errorf("there is no script %s", script)
			}
		case folder != "":
			if info, err := os.Stat(filepath.Join(root, folder)); err == nil && info.IsDir() {
				dir = filepath.Join(root, folder)
			}
		default:
			found++
			if !has(t, dir, name) {
				t.Errorf("there is no %s in %s", name, dir)
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d tests are named: has the page another form now?", found)
	}
}

func has(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^func ` + name + `\(`).Match(text) {
			return true
		}
	}
	return false
}
