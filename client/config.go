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
)

// DefaultConfigFile is the config file if neither --config nor CRI_CONFIG_FILE names another. If it does not exist,
// crictl.yaml next to this program is tried.
const DefaultConfigFile = "/etc/crictl.yaml"

const (
	keyRuntimeEndpoint = "runtime-endpoint"
	keyImageEndpoint   = "image-endpoint"
	keyNetworkPlugin   = "network-plugin"
)

// configKeys lists the keys of the config file in display order. own marks keys that only crishim knows; crictl
// rejects a file with such a key.
var configKeys = []struct {
	name  string
	field func(*Config) any
	own   bool
}{
	{keyRuntimeEndpoint, func(c *Config) any { return &c.RuntimeEndpoint }, false},
	{keyImageEndpoint, func(c *Config) any { return &c.ImageEndpoint }, false},
	{"timeout", func(c *Config) any { return &c.Timeout }, false},
	{"debug", func(c *Config) any { return &c.Debug }, false},
	{"pull-image-on-create", func(c *Config) any { return &c.PullImageOnCreate }, false},
	{"disable-pull-on-run", func(c *Config) any { return &c.DisablePullOnRun }, false},
	{"max-retries", func(c *Config) any { return &c.MaxRetries }, false},
	{keyNetworkPlugin, func(c *Config) any { return &c.NetworkPlugin }, true},
	{"shim-config", func(c *Config) any { return &c.ShimConfig }, true},
}

// ConfigKeys lists the valid keys of a config file in display order.
func ConfigKeys() (names []string) {
	for _, key := range configKeys {
		names = append(names, key.name)
	}
	return names
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
	NetworkPlugin     string // network plugin for new sandboxes of the embedded shim
	ShimConfig        string // settings file of the embedded shim

	Path string // path of the file, also if it does not exist yet; "" if no file is used

	exists  bool
	doc     yaml.Node
	comment string          // comment of a file without keys
	set     map[string]bool // keys that the file contains
}

// ConfigError is a config file that cannot be read or parsed.
type ConfigError struct {
	Path   string
	Line   int // 0: the file as a whole
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

func (e *ConfigError) Hint() string { return e.hint }

func (e *ConfigError) Unwrap() error { return e.err }

type ConfigSource struct {
	Path       string // value of --config; like CRI_CONFIG_FILE, it must name an existing file
	LookupEnv  func(string) (string, bool)
	Executable string // path of this program; crictl.yaml next to it is tried last. "" disables this
	New        bool   // the named file will be written and may be missing
	Default    string // path if the user names none: DefaultConfigFile except in tests; "" for none
}

// file returns the path of the config file and whether the user named it.
func (s ConfigSource) file() (path string, named bool) {
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

// LoadConfig reads the config file of the source. A missing default file is an empty config.
func LoadConfig(s ConfigSource) (*Config, error) {
	path, named := s.file()
	data, err := bounded.ReadFile(path, bounded.Config)
	if path == "" || (s.New || !named) && errors.Is(err, fs.ErrNotExist) {
		return &Config{Path: path, set: map[string]bool{}}, nil
	}
	if err != nil {
		e := &ConfigError{Path: path, Reason: bounded.Reason(err), err: err}
		if errors.Is(err, fs.ErrNotExist) {
			e.hint = "--config and CRI_CONFIG_FILE name a file that must exist; `crishim config --set` creates it"
		}
		return nil, e
	}
	return ParseConfig(path, data)
}

// ParseConfig parses the content of a config file. path is used in errors only.
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

func (c *Config) field(name string) any {
	for _, key := range configKeys {
		if key.name == name {
			return key.field(c)
		}
	}
	return nil
}

// apply sets one key. An empty value restores the default.
func (c *Config) apply(key, text string) error {
	invalid := &SyntaxError{What: key, Text: text}
	switch v := c.field(key).(type) {
	case *string:
		if (key == keyRuntimeEndpoint || key == keyImageEndpoint) && text != "" {
			if _, err := ParseEndpoint(text); errors.As(err, &invalid) {
				invalid.What = key
				return invalid
			}
		}
		if key == keyNetworkPlugin && !slices.Contains([]string{"", "bridge", "cni", "kubenet"}, text) {
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

// parseSeconds parses a duration with a unit, or a number of seconds.
func parseSeconds(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	return time.ParseDuration(text)
}

func (c *Config) Exists() bool { return c.exists }

func (c *Config) IsSet(key string) bool { return c.set[key] }
