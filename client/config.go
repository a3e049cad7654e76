package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/crishim/crishim/internal/bounded"
)

// DefaultConfigFile is where crictl's config file is looked for first.
const DefaultConfigFile = "/etc/crictl.yaml"

// Keys of the config file, nearly all of which are crictl's.
const (
	KeyRuntimeEndpoint   = "runtime-endpoint"
	KeyImageEndpoint     = "image-endpoint"
	KeyTimeout           = "timeout"
	KeyDebug             = "debug"
	KeyPullImageOnCreate = "pull-image-on-create"
	KeyDisablePullOnRun  = "disable-pull-on-run"
	KeyMaxRetries        = "max-retries"
	// These two are our own. crictl refuses a file that has one of them.
	KeyNetworkPlugin = "network-plugin"
	KeyShimConfig    = "shim-config"
)

// ConfigKeys are all keys that a config file may have, in the order in which
// they are listed.
func ConfigKeys() []string {
	return []string{
		KeyRuntimeEndpoint, KeyImageEndpoint, KeyTimeout, KeyDebug, KeyPullImageOnCreate, KeyDisablePullOnRun, KeyMaxRetries,
		KeyNetworkPlugin, KeyShimConfig,
	}
}

// Config is what a config file says. The zero value is an empty file.
type Config struct {
	RuntimeEndpoint   string
	ImageEndpoint     string
	Timeout           time.Duration
	Debug             bool
	PullImageOnCreate bool
	DisablePullOnRun  bool
	MaxRetries        int
	NetworkPlugin     string // of the embedded shim's new pods
	ShimConfig        string // file with the embedded shim's settings

	// Path is where it was read from, or where it would be written; empty
	// when there is no file.
	Path string

	// lines is the file's text, doc the same parsed; set has what it says.
	lines []string
	doc   yaml.Node
	set   map[string]string
}

// ConfigError is a config file that cannot be used.
type ConfigError struct {
	Path string
	// Line is where the mistake is; 0 when it is the file as a whole.
	Line   int
	Reason string
	hint   string
	err    error
}

func (e *ConfigError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("config file %s, line %d: %s", e.Path, e.Line, e.Reason)
	}
	return fmt.Sprintf("config file %s: %s", e.Path, e.Reason)
}

// Hint is the next step when one is known.
func (e *ConfigError) Hint() string { return e.hint }

func (e *ConfigError) Unwrap() error { return e.err }

// ConfigSource says where to look for a config file.
type ConfigSource struct {
	// Path is what --config gave. It and CRI_CONFIG_FILE name a file that
	// must exist.
	Path      string
	LookupEnv func(string) (string, bool)
	// Executable is the running program, beside which crictl.yaml is looked
	// for last; empty means not to.
	Executable string
	// New lets a named file be missing, for whoever is going to write it.
	New bool
	// Default is the file that is looked for first, which is DefaultConfigFile
	// outside tests; empty means that there is none.
	Default string
}

// File is the config file to use and whether somebody named it.
func (s ConfigSource) File() (path string, named bool) {
	if s.Path != "" {
		return s.Path, true
	}
	if s.LookupEnv != nil {
		if path, _ := s.LookupEnv("CRI_CONFIG_FILE"); path != "" {
			return path, true
		}
	}
	path = s.Default
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && s.Executable != "" {
		beside := filepath.Join(filepath.Dir(s.Executable), "crictl.yaml")
		if _, err := os.Stat(beside); err == nil {
			return beside, false
		}
	}
	return path, false
}

// LoadConfig reads the config file that the source leads to. A default file
// that is not there is an empty config; a broken one is an error, because
// half of what it says would be worse than nothing.
func LoadConfig(s ConfigSource) (*Config, error) {
	path, named := s.File()
	data, err := bounded.ReadFile(path, bounded.Config)
	if path == "" || (s.New || !named) && errors.Is(err, fs.ErrNotExist) {
		return &Config{Path: path, set: map[string]string{}}, nil
	}
	if err != nil {
		e := &ConfigError{Path: path, Reason: reasonOf(err), err: err}
		if errors.Is(err, fs.ErrNotExist) {
			e.hint = "--config and CRI_CONFIG_FILE name a file that must exist; `crishim config --set` creates it"
		}
		return nil, e
	}
	return ParseConfig(path, data)
}

// reasonOf is an error without the path that the message has already.
func reasonOf(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// ParseConfig reads a config file's content; the path is for messages.
func ParseConfig(path string, data []byte) (*Config, error) {
	c := &Config{Path: path, set: map[string]string{}}
	c.lines = strings.Split(string(data), "\n")
	if err := yaml.Unmarshal(data, &c.doc); err != nil {
		return nil, &ConfigError{Path: path, Reason: "is no YAML: " + err.Error(), err: err}
	}
	if len(c.doc.Content) == 0 {
		return c, nil
	}
	root := c.doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return c, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, &ConfigError{Path: path, Line: root.Line, Reason: "it must be a mapping of keys to values"}
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if !slices.Contains(ConfigKeys(), key.Value) {
			return nil, &ConfigError{
				Path: path, Line: key.Line, Reason: fmt.Sprintf("unknown key %q", key.Value), hint: "known keys: " + joinKeys(),
			}
		}
		if value.Kind != yaml.ScalarNode {
			return nil, &ConfigError{Path: path, Line: value.Line, Reason: key.Value + " must be a single value"}
		}
		text := value.Value
		if value.Tag == "!!null" {
			text = ""
		}
		if err := c.apply(key.Value, text); err != nil {
			return nil, &ConfigError{Path: path, Line: value.Line, Reason: err.Error()}
		}
	}
	return c, nil
}

// apply sets one key. An empty value is the key's default.
func (c *Config) apply(key, text string) error {
	var err error
	switch key {
	case KeyRuntimeEndpoint:
		c.RuntimeEndpoint, err = endpointValue(text)
	case KeyImageEndpoint:
		c.ImageEndpoint, err = endpointValue(text)
	case KeyTimeout:
		c.Timeout, err = ParseSeconds(text)
	case KeyDebug:
		c.Debug, err = boolValue(text)
	case KeyPullImageOnCreate:
		c.PullImageOnCreate, err = boolValue(text)
	case KeyDisablePullOnRun:
		c.DisablePullOnRun, err = boolValue(text)
	case KeyMaxRetries:
		c.MaxRetries, err = countValue(text)
	case KeyNetworkPlugin:
		c.NetworkPlugin, err = pluginValue(text)
	case KeyShimConfig:
		c.ShimConfig = text
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	if err != nil {
		return fmt.Errorf("%s %w", key, err)
	}
	c.set[key] = text
	return nil
}

func endpointValue(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	_, err := ParseEndpoint(text)
	return text, err
}

func pluginValue(text string) (string, error) {
	switch text {
	case "", "bridge", "cni", "kubenet":
		return text, nil
	}
	return "", fmt.Errorf("must be bridge, cni or kubenet, not %q", text)
}

func boolValue(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("must be true or false, not %q", text)
	}
	return b, nil
}

func countValue(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("must be a number from 0, not %q", text)
	}
	return n, nil
}

// ParseSeconds reads a duration with a unit, or a number of seconds. Zero
// and less mean that nothing was asked for.
func ParseSeconds(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("must be a duration such as 5s or a number of seconds, not %q", text)
	}
	return d, nil
}

// Exists reports whether the config came from a file.
func (c *Config) Exists() bool { return c.lines != nil }

// IsSet reports whether the file has the key.
func (c *Config) IsSet(key string) bool {
	_, ok := c.set[key]
	return ok
}

// Options puts what the file says under what flags and environment said. A
// key that is already given with its zero value is named, to be left alone.
func (c *Config) Options(o Options, given ...string) Options {
	if o.RuntimeEndpoint == "" {
		o.RuntimeEndpoint = c.RuntimeEndpoint
	}
	if o.ImageEndpoint == "" {
		o.ImageEndpoint = c.ImageEndpoint
	}
	if o.QueryTimeout == 0 && c.Timeout > 0 {
		o.QueryTimeout = c.Timeout
	}
	if o.MaxRetries == 0 && !slices.Contains(given, KeyMaxRetries) {
		o.MaxRetries = c.MaxRetries
	}
	return o
}
