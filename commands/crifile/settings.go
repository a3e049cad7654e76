package crifile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Settings gives each setting of a file with one YAML map from names to values
// to set, as the text that a flag of that name would get; a list is its parts
// with commas between them. A mistake is an *Error with its line: of those are
// names that are not among known, and what set refuses.
func Settings(name string, text []byte, known []string, set func(name, value string) error) error {
	docs, err := Parse(name, text)
	if err != nil || len(docs) == 0 {
		return err
	}
	f, n := docs[0].file, docs[0].node
	if len(docs) > 1 {
		return f.errorf(docs[1].node, "a second document, where one is wanted")
	}
	if n.Kind != yaml.MappingNode {
		return f.errorf(n, "want lines \"name: value\", found %s", kindOf(n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !slices.Contains(known, key.Value) {
			return f.errorf(key, "there is no flag %q", key.Value).guess(key.Value, known)
		}
		value, err := f.setting(key.Value, target(n.Content[i+1]))
		if err != nil {
			return err
		}
		if err := set(key.Value, value); err != nil {
			return f.errorf(key, "%s: %v", key.Value, err)
		}
	}
	return nil
}

// setting is a value as it would stand on the command line.
func (f *file) setting(name string, n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return n.Value, nil
	case n.Kind == yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		for i, part := range n.Content {
			text, err := f.setting(name, target(part))
			if err != nil {
				return "", err
			}
			parts[i] = text
		}
		return strings.Join(parts, ","), nil
	}
	return "", f.errorf(n, "%s: want a text, a number, true or false, or a list of those, found %s", name, kindOf(n))
}
