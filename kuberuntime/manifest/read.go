// Package manifest reads manifests of pods and workloads. A file may have several documents and Lists. The ConfigMaps,
// Secrets, RuntimeClasses and claims that the pods use must be in the same input. Optional objects may be missing. Pull
// secrets may also be missing, with a warning. Options.AnyClaim accepts missing claims.
//
// Reading is strict. Every problem names the file, and the document and the field's path if it has them. All problems of
// an input are reported together, before anything is created. Objects that need an API server, such as a Service, are
// left out with a warning; Options.Strict refuses them. Default sets the defaults of an API server. Validate refuses
// fields that need a cluster or a volume plugin. The package does not use a runtime.
package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/internal/bounded"
)

// MaxSize limits the bytes of an input after alias expansion.
const MaxSize = 16 << 20

// maxObjects limits the documents and list items of an input, and the pods that Options.Replicas adds.
const maxObjects = 10_000

// File is the content of a manifest file. Standard input has the name "-".
type File struct {
	Name string
	Data []byte
}

// Options control how an input is read.
type Options struct {
	Replicas   int               // number of pods of a Deployment, ReplicaSet or StatefulSet; 0 means 1, with a warning if the manifest has another number
	NodeLabels map[string]string // labels of this node, in addition to the labels of every node
	VolumeDir  string            // the directory of claims: VolumeDir/NAMESPACE/NAME
	AnyClaim   bool              // accept claims that the input does not define
	Strict     bool              // refuse kinds that need an API server
	NamesOnly  bool              // validate only the metadata of pods, for callers that run no pods
}

// Read parses files, directories and "-" (in). It reads the *.yaml, *.yml and *.json files of a directory, without
// subdirectories.
func Read(o Options, in io.Reader, paths ...string) (*Set, error) {
	p := newParser(o)
	for _, path := range paths {
		if path == "-" {
			data, err := bounded.ReadAll(in, MaxSize)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			p.add("-", data)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		files := []string{path}
		if info.IsDir() {
			if files, err = DirFiles(path); err != nil {
				return nil, fmt.Errorf("read manifests: %w", err)
			}
		}
		for _, file := range files {
			data, err := bounded.ReadFile(file, MaxSize)
			if err != nil {
				return nil, fmt.Errorf("read manifest: %w", err)
			}
			p.add(file, data)
		}
	}
	return p.finish()
}

// Parse reads files into a Set, sets defaults, and validates the Set. Problems of the input are returned as Errors.
func Parse(o Options, contents ...File) (*Set, error) {
	p := newParser(o)
	for _, file := range contents {
		p.add(file.Name, file.Data)
	}
	return p.finish()
}

type parser struct {
	*Set
	seen     map[string]Source // place of each object, by kind and "namespace/name"
	leftOut  map[string]int    // number of ignored objects by kind
	once     []string          // CronJobs, which run once
	placed   []string          // claims that pods use, for the warning that delete keeps their directories
	problems Errors
	size     bounded.Budget
	objects  bounded.Budget
}

func newParser(o Options) *parser {
	return &parser{
		Set: &Set{
			ConfigMaps: map[string]*v1.ConfigMap{}, Secrets: map[string]*v1.Secret{}, RuntimeClasses: map[string]*RuntimeClass{},
			options: o, claims: map[string]bool{},
		},
		seen:    map[string]Source{},
		leftOut: map[string]int{},
		size:    bounded.Budget{Left: MaxSize, Of: fmt.Sprintf("%d MiB of manifests, with their aliases expanded", MaxSize>>20)},
		objects: bounded.Budget{Left: maxObjects, Of: fmt.Sprintf("%d objects", maxObjects)},
	}
}

func (p *parser) finish() (*Set, error) {
	var accounts []string
	for _, pod := range p.Pods {
		Default(pod.Pod)
		if name := cmp.Or(pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount); name != "" && name != "default" {
			accounts = append(accounts, key(pod.Namespace, pod.Name))
		}
		p.placeClaims(pod)
		p.validate(pod)
	}
	scaled := p.replicate()
	var leftOut []string
	for _, kind := range slices.Sorted(maps.Keys(p.leftOut)) {
		leftOut = append(leftOut, fmt.Sprintf("%d %s", p.leftOut[kind], kind))
	}
	slices.Sort(p.placed)
	slices.Sort(p.noSecret)
	p.warn("left out, as they need an API server", leftOut)
	p.warn("pull secrets are not in the input", slices.Compact(p.noSecret))
	p.warn("there is no API server: pods get no token of their service account", accounts)
	p.warn("one pod runs of each, --replicas N runs more", scaled)
	p.warn("runs once, without its schedule", p.once)
	p.warn("claims are directories in "+p.options.VolumeDir+", which delete keeps", slices.Compact(p.placed))
	if len(p.problems) > 0 {
		return p.Set, p.problems
	}
	return p.Set, nil
}

func (p *parser) validate(pod Pod) {
	for _, e := range Validate(pod.Pod, p.Set) {
		p.problem(pod.Source, e.Field, e.ErrorBody())
	}
}

// warn adds one warning that lists all objects it is about.
func (p *parser) warn(text string, about []string) {
	if len(about) > 0 {
		p.Warnings = append(p.Warnings, text+": "+strings.Join(about, ", "))
	}
}

func (p *parser) problem(at Source, path, text string) {
	at.Path = join(at.Path, path)
	p.problems = append(p.problems, &Error{Source: at, Problem: text})
}

// DirFiles lists the manifests of a directory, sorted by name. Like the kubelet, it skips hidden files, because editors
// write them.
func DirFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			continue
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err != nil || info.Mode().IsRegular() { // if Stat fails, the caller reports the error when it reads the file
			files = append(files, file)
		}
	}
	return files, nil
}

type document struct {
	number int
	line   int
	data   []byte
}

// split splits a stream at its document separators. Empty documents count, so that the numbers in messages match the
// file.
func split(data []byte) []document {
	var out []document
	current := document{number: 1, line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if isSeparator(text) {
			out = append(out, current)
			current = document{number: current.number + 1, line: line + 1}
			continue
		}
		current.data = append(current.data, text...)
	}
	out = append(out, current)
	if len(out) > 1 && isBlank(out[0].data) { // comments before the first "---" do not count as a document
		out = out[1:]
		for i := range out {
			out[i].number--
		}
	}
	return slices.DeleteFunc(out, func(d document) bool { return isBlank(d.data) })
}

// splitJSON splits a document into its consecutive JSON objects, as jq writes them, up to limit. A document that does
// not begin with a JSON object is YAML and is returned unchanged.
func (d document) splitJSON(limit int) ([]document, error) {
	var out []document
	rest := d.data
	for !isBlank(rest) && len(out) < limit {
		var object json.RawMessage
		dec := json.NewDecoder(bytes.NewReader(rest))
		err := dec.Decode(&object)
		if err == nil && object[0] != '{' {
			err = errors.New("the value is no object")
		}
		if err != nil && len(out) == 0 {
			return []document{d}, nil
		}
		if err != nil {
			return out, fmt.Errorf("after object %d of the document: %w", len(out), err)
		}
		out = append(out, document{d.number, d.line, object})
		rest = rest[dec.InputOffset():]
	}
	return out, nil
}

// isSeparator reports whether a line is "---", optionally followed by a comment.
func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	rest = bytes.TrimSpace(rest)
	return ok && (len(rest) == 0 || rest[0] == '#')
}

// Empty reports whether a stream has no document with content.
func Empty(data []byte) bool { return len(split(data)) == 0 }

// isBlank reports whether a document has only comments and directives.
func isBlank(data []byte) bool {
	isBreak := func(r rune) bool { return strings.ContainsRune("\n\r\u0085\u2028\u2029", r) } // YAML's line breaks
	for line := range bytes.FieldsFuncSeq(data, isBreak) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && !bytes.Equal(line, []byte("...")) {
			return false
		}
	}
	return true
}

type Error struct {
	Source  // Source.Path ends with the path of the field
	Problem string
	hint    string
}

// Hint returns the next step, if known.
func (e *Error) Hint() string { return e.hint }

// Error formats a problem such as "web.yaml: document 2: spec.containers[0].image: required".
func (e *Error) Error() string {
	parts := []string{fileName(e.File)}
	if e.Document > 0 {
		parts = append(parts, fmt.Sprintf("document %d", e.Document))
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	return strings.Join(append(parts, e.Problem), ": ")
}

func fileName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}
