package client

import (
	"cmp"
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
	"github.com/crishim/crishim/internal/rundir"
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

// ConfigKeys lists the keys that a config file may have, in the order in which they are shown.
func ConfigKeys() []string {
	return []string{
		KeyRuntimeEndpoint, KeyImageEndpoint, KeyTimeout, KeyDebug, KeyPullImageOnCreate, KeyDisablePullOnRun, KeyMaxRetries,
		KeyNetworkPlugin, KeyShimConfig,
	}
}

// Config is the content of a config file. The zero value is an empty file.
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

	exists  bool
	doc     yaml.Node
	comment string          // of a file without keys
	set     map[string]bool // the keys in it
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

// Hint returns the next step, "" where none is known.
func (e *ConfigError) Hint() string { return e.hint }

func (e *ConfigError) Unwrap() error { return e.err }

// ConfigSource is where to look for a config file.
type ConfigSource struct {
	// Path is what --config gave. It and CRI_CONFIG_FILE name a file that
	// must exist.
	Path      string
	LookupEnv func(string) (string, bool)
	// Executable is the running program: crictl.yaml is looked for last in its
	// directory; empty means not to.
	Executable string
	// New lets a named file be missing, because it is going to be written.
	New bool
	// Default is the file that is looked for first, which is DefaultConfigFile
	// outside tests; empty means that there is none.
	Default string
}

// File returns the config file to use and whether it was named.
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
		next := filepath.Join(filepath.Dir(s.Executable), "crictl.yaml")
		if _, err := os.Stat(next); err == nil {
			return next, false
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
		return &Config{Path: path, set: map[string]bool{}}, nil
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

// reasonOf returns an error without the path that the message has already.
func reasonOf(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// ParseConfig reads a config file's content; the path is for messages.
func ParseConfig(path string, data []byte) (*Config, error) {
	c := &Config{Path: path, exists: true, set: map[string]bool{}}
	if err := yaml.Unmarshal(data, &c.doc); err != nil {
		return nil, &ConfigError{Path: path, Reason: "not valid YAML: " + err.Error(), err: err}
	}
	if len(c.doc.Content) == 0 {
		c.comment = strings.TrimSpace(string(data))
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
				Path: path, Line: key.Line, Reason: fmt.Sprintf("unknown key %q", key.Value), hint: "known keys: " + strings.Join(ConfigKeys(), ", "),
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
			e := &ConfigError{Path: path, Line: value.Line, Reason: err.Error()}
			var syntax *SyntaxError
			if errors.As(err, &syntax) {
				e.hint = syntax.hint
			}
			return nil, e
		}
	}
	return c, nil
}

// field returns the place of a key's value, nil for an unknown key.
func (c *Config) field(key string) any {
	switch key {
	case KeyRuntimeEndpoint:
		return &c.RuntimeEndpoint
	case KeyImageEndpoint:
		return &c.ImageEndpoint
	case KeyTimeout:
		return &c.Timeout
	case KeyDebug:
		return &c.Debug
	case KeyPullImageOnCreate:
		return &c.PullImageOnCreate
	case KeyDisablePullOnRun:
		return &c.DisablePullOnRun
	case KeyMaxRetries:
		return &c.MaxRetries
	case KeyNetworkPlugin:
		return &c.NetworkPlugin
	case KeyShimConfig:
		return &c.ShimConfig
	}
	return nil
}

// apply sets one key. An empty value is the key's default.
func (c *Config) apply(key, text string) error {
	invalid := &SyntaxError{What: key, Text: text}
	switch v := c.field(key).(type) {
	case *string:
		if (key == KeyRuntimeEndpoint || key == KeyImageEndpoint) && text != "" {
			if _, err := ParseEndpoint(text); errors.As(err, &invalid) {
				invalid.What = key
				return invalid
			}
		}
		if key == KeyNetworkPlugin && !slices.Contains([]string{"", "bridge", "cni", "kubenet"}, text) {
			invalid.Reason = "must be bridge, cni or kubenet"
			return invalid
		}
		*v = text
	case *bool:
		b, err := strconv.ParseBool(cmp.Or(text, "false"))
		if err != nil {
			invalid.Reason = "must be true or false"
			return invalid
		}
		*v = b
	case *int:
		n, err := strconv.Atoi(cmp.Or(text, "0"))
		if err != nil || n < -1 {
			invalid.Reason = "must be a number, 0 or more, or -1 for no end"
			return invalid
		}
		*v = n
	case *time.Duration:
		d, err := parseSeconds(cmp.Or(text, "0"))
		if err != nil {
			invalid.Reason = "must be a duration such as 5s or a number of seconds"
			return invalid
		}
		*v = d
	default:
		return unknownKey(key)
	}
	c.set[key] = true
	return nil
}

func unknownKey(key string) error {
	return &SyntaxError{What: "config key", Text: key, Reason: "must be one of " + strings.Join(ConfigKeys(), ", ")}
}

// parseSeconds reads a duration with a unit, or a number of seconds.
func parseSeconds(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	return time.ParseDuration(text)
}

// Exists reports whether the config came from a file.
func (c *Config) Exists() bool { return c.exists }

// IsSet reports whether the file has the key.
func (c *Config) IsSet(key string) bool { return c.set[key] }

// Options fills in from the file what flags and environment left unset. A key that
// they set to its zero value is named in given, and stays.
func (c *Config) Options(o Options, given ...string) Options {
	o.RuntimeEndpoint = cmp.Or(o.RuntimeEndpoint, c.RuntimeEndpoint)
	o.ImageEndpoint = cmp.Or(o.ImageEndpoint, c.ImageEndpoint)
	o.QueryTimeout = cmp.Or(o.QueryTimeout, max(c.Timeout, 0))
	if o.MaxRetries == 0 && !slices.Contains(given, KeyMaxRetries) {
		o.MaxRetries = c.MaxRetries
	}
	return o
}

// RunDir returns the user's own directory for what lasts until the next boot.
func RunDir(lookupEnv func(string) (string, bool)) (string, error) { return rundir.Base(lookupEnv) }
