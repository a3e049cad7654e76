package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crishim/crishim/internal/bounded"
)

// Read reads files, folders and "-" (in) into one Set, fills in defaults, and checks it.
// A folder stands for its *.yaml, *.yml and *.json files, not for those of its subfolders.
func Read(in io.Reader, paths ...string) (*Set, error) {
	set := NewSet()
	var problems Errors
	for _, path := range paths {
		if path == "-" {
			data, err := bounded.ReadAll(in, bounded.Config)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			problems = append(problems, set.add("-", data)...)
			continue
		}
		files, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := bounded.ReadFile(file, bounded.Config)
			if err != nil {
				return nil, fmt.Errorf("read manifest: %w", err)
			}
			problems = append(problems, set.add(file, data)...)
		}
	}
	problems = append(problems, set.finish()...)
	return set, problems.orNil()
}

// Parse is Read for text that is already there; file is only a name for messages.
func Parse(file string, data []byte) (*Set, error) {
	set := NewSet()
	problems := set.add(file, data)
	problems = append(problems, set.finish()...)
	return set, problems.orNil()
}

func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	return FolderFiles(path)
}

// FolderFiles lists the manifests of a folder in name order. Hidden files are editors'
// and are left out, as the kubelet does.
func FolderFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			continue
		}
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since ReadDir, or a dangling link
		}
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		if info.Mode().IsRegular() {
			files = append(files, file)
		}
	}
	return files, nil
}

// document is one YAML document of a file.
type document struct {
	number int
	line   int
	data   []byte
}

// split cuts a stream at its document separators. Documents without content keep their
// number, so that messages agree with what an editor shows.
func split(data []byte) []document {
	var out []document
	current := document{number: 1, line: 1}
	line := 0
	for len(data) > 0 {
		line++
		text, rest, found := bytes.Cut(data, []byte("\n"))
		data = rest
		if isSeparator(text) {
			out = append(out, current)
			current = document{number: current.number + 1, line: line + 1}
			continue
		}
		current.data = append(current.data, text...)
		if found {
			current.data = append(current.data, '\n')
		}
	}
	return slices.DeleteFunc(renumber(append(out, current)), func(d document) bool { return isBlank(d.data) })
}

// renumber takes the empty text before a leading "---" out of the count.
func renumber(docs []document) []document {
	if len(docs) < 2 || !isBlank(docs[0].data) {
		return docs
	}
	docs = docs[1:]
	for i := range docs {
		docs[i].number--
	}
	return docs
}

func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	if !ok {
		return false
	}
	rest = bytes.TrimSpace(rest)
	return len(rest) == 0 || rest[0] == '#'
}

func isBlank(data []byte) bool {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && !bytes.Equal(line, []byte("...")) {
			return false
		}
	}
	return true
}
