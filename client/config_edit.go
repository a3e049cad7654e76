package client

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Get returns a key's value as text, and the default where the file has none.
func (c *Config) Get(key string) (string, error) {
	switch v := c.field(key).(type) {
	case *string:
		return *v, nil
	case *bool:
		return strconv.FormatBool(*v), nil
	case *int:
		return strconv.Itoa(*v), nil
	case *time.Duration:
		if *v%time.Second == 0 {
			return strconv.FormatInt(int64(*v/time.Second), 10), nil
		}
		return v.String(), nil
	}
	return "", unknownKey(key)
}

// Set checks and changes a key's value. Save writes it.
func (c *Config) Set(key, value string) error {
	if c.set == nil {
		c.set = map[string]bool{}
	}
	if err := c.apply(key, value); err != nil {
		return err
	}
	node := c.scalar(key)
	root := c.mapping()
	found := false
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == key {
			found = true
			c.edit(root, root.Content[i], root.Content[i+1], node)
		}
	}
	if !found {
		c.add(root, key, node)
	}
	if !c.readsBack(key) {
		c.rewrite() // odd but valid YAML: the layout goes, the values stay
	}
	return nil
}

// readsBack reports whether the text, parsed again, has the key's value.
func (c *Config) readsBack(key string) bool {
	again, err := ParseConfig(c.Path, []byte(strings.Join(c.lines, "\n")))
	if err != nil {
		return false
	}
	want, _ := c.Get(key)
	got, _ := again.Get(key)
	return got == want
}

// edit replaces a value in the text and leaves the rest as it is: a YAML encoder would keep
// the comments, but not the layout.
func (c *Config) edit(root, key, old, node *yaml.Node) {
	if root.Style&yaml.FlowStyle != 0 || old.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || old.Line > key.Line {
		node.HeadComment, node.LineComment, node.FootComment = old.HeadComment, old.LineComment, old.FootComment
		line, column := old.Line, old.Column
		*old = *node
		old.Line, old.Column = line, column
		c.rewrite()
		return
	}
	line := c.lines[key.Line-1]
	head := line[:strings.Index(line[key.Column-1:], ":")+key.Column]
	c.lines[key.Line-1] = head + " " + encode(node)
	if old.LineComment != "" {
		c.lines[key.Line-1] += " " + old.LineComment
	}
	old.Value, old.Tag, old.Style = node.Value, node.Tag, node.Style
}

// add puts a key after the last one.
func (c *Config) add(root *yaml.Node, key string, node *yaml.Node) {
	name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
	root.Content = append(root.Content, name, node)
	if root.Style&yaml.FlowStyle != 0 {
		c.rewrite()
		return
	}
	if n := len(c.lines); n > 0 && c.lines[n-1] == "" {
		c.lines = c.lines[:n-1]
	}
	c.lines = append(c.lines, key+": "+encode(node), "")
	name.Line, name.Column = len(c.lines)-1, 1
	node.Line = name.Line
}

// rewrite builds the text from the parsed document.
func (c *Config) rewrite() {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if errors.Join(enc.Encode(&c.doc), enc.Close()) == nil {
		c.setText(buf.String())
	}
}

// setText replaces the text, and parses it for the places of its values.
func (c *Config) setText(text string) {
	c.lines = strings.Split(text, "\n")
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) == nil {
		c.doc = doc
	}
}

func encode(node *yaml.Node) string {
	out, err := yaml.Marshal(node)
	if err != nil { // a scalar of ours can always be written
		return strconv.Quote(node.Value)
	}
	return strings.TrimSpace(string(out))
}

// scalar returns a key's value as crictl would read it back: text quoted where YAML
// needs it, the rest as it stands.
func (c *Config) scalar(key string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"}
	node.Value, _ = c.Get(key)
	switch v := c.field(key).(type) {
	case *bool:
		node.Tag = "!!bool"
	case *int:
		node.Tag = "!!int"
	case *time.Duration:
		if *v%time.Second == 0 {
			node.Tag = "!!int"
		}
	}
	return node
}

// mapping returns the document's root, made where the file had none.
func (c *Config) mapping() *yaml.Node {
	if c.doc.Kind == 0 {
		c.doc.Kind = yaml.DocumentNode
	}
	if len(c.doc.Content) == 0 || c.doc.Content[0].Kind != yaml.MappingNode {
		c.doc.Content = []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}}
	}
	return c.doc.Content[0]
}

// Save writes the file to its path, with the comments that it had. Keys that are not set are
// not added. On an error the old file is unchanged.
func (c *Config) Save() error {
	if c.Path == "" {
		return &ConfigError{Path: DefaultConfigFile, Reason: "must not be written here", hint: "--config names a file"}
	}
	// A symbolic link is written through, not replaced.
	path := c.Path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := os.FileMode(0o644)
	if fi, err := os.Stat(path); err == nil {
		mode = fi.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return &ConfigError{Path: c.Path, Reason: "its directory cannot be made: " + reasonOf(err), err: err}
	}
	if err := writeFile(path, []byte(strings.Join(c.lines, "\n")), mode); err != nil {
		e := &ConfigError{Path: c.Path, Reason: "it cannot be written: " + reasonOf(err), err: err}
		if errors.Is(err, fs.ErrPermission) {
			e.hint = "try it with sudo"
		}
		return e
	}
	return nil
}

func writeFile(path string, data []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
