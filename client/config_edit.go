package client

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/moby/sys/atomicwriter"
	"go.yaml.in/yaml/v3"

	"github.com/crishim/crishim/internal/bounded"
)

// Get returns the value of a key as text, or its default if the file does not set it.
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

// Set validates and changes the value of a key and preserves the file's comments. Save writes the file.
func (c *Config) Set(key, value string) error {
	if c.set == nil {
		c.set = map[string]bool{}
	}
	if err := c.apply(key, value); err != nil {
		return err
	}
	text, err := c.Get(key)
	if err != nil {
		return err
	}
	if len(c.doc.Content) == 0 || c.doc.Content[0].Kind != yaml.MappingNode { // an empty file
		c.doc = yaml.Node{Kind: yaml.DocumentNode, HeadComment: c.comment, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	root := c.doc.Content[0]
	found := false
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == key {
			c.setNode(root.Content[i+1], key, text)
			found = true
		}
	}
	if !found {
		node := &yaml.Node{Kind: yaml.ScalarNode}
		c.setNode(node, key, text)
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, node)
	}
	return nil
}

// AddMissing adds crictl's keys that the file does not have, with their defaults. crictl does the same when it writes.
func (c *Config) AddMissing() error {
	var errs []error
	for _, key := range configKeys {
		if key.own || c.set[key.name] {
			continue
		}
		value, err := c.Get(key.name)
		errs = append(errs, err, c.Set(key.name, value))
	}
	return errors.Join(errs...)
}

// setNode sets a value and preserves quotes and comments.
func (c *Config) setNode(node *yaml.Node, key, text string) {
	node.Value, node.Tag, node.Style = text, "", node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle)
	if _, isText := c.field(key).(*string); isText {
		node.Tag = "!!str"
	} else {
		node.Style = 0
	}
}

func (c *Config) text() ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(&c.doc), encoder.Close())
	return text.Bytes(), err
}

// Save writes the file to its path. It preserves comments and does not add unset keys. On an error the old file is
// unchanged.
func (c *Config) Save() error {
	if c.Path == "" {
		return &ConfigError{Path: DefaultConfigFile, Reason: "must not be written here", hint: "--config names a file"}
	}
	// Writing to a symbolic link changes its target.
	path := c.Path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := os.FileMode(0o644)
	if fi, err := os.Stat(path); err == nil {
		mode = fi.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return &ConfigError{Path: c.Path, Reason: "its directory cannot be made: " + bounded.Reason(err), err: err}
	}
	text, err := c.text()
	if err != nil {
		return err
	}
	if err := atomicwriter.WriteFile(path, text, mode); err != nil {
		e := &ConfigError{Path: c.Path, Reason: "it cannot be written: " + bounded.Reason(err), err: err}
		if errors.Is(err, fs.ErrPermission) {
			e.hint = "try it with sudo"
		}
		return e
	}
	return nil
}
