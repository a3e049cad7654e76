package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/proctree"
)

const (
	// pluginGroup is the API group of messages between the kubelet and a credential plugin.
	pluginGroup = "credentialprovider.kubelet.k8s.io/"
	// pluginConfigGroup is the API group of the kubelet's CredentialProviderConfig.
	pluginConfigGroup = "kubelet.config.k8s.io/"
	// pluginTimeout is the kubelet's limit for one call of a plugin.
	pluginTimeout = time.Minute
)

// pluginVersions are the versions of both API groups. All fields used here are the same in each.
var pluginVersions = []string{"v1", "v1beta1", "v1alpha1"}

// Plugins are the kubelet's exec credential providers: programs that print the credentials of a registry. Lookup skips
// a nil *Plugins.
type Plugins struct {
	dir     string
	plugins []plugin

	now  func() time.Time
	warn func(error)

	calls singleflight.Group // by plugin and image, so that concurrent pulls of an image share a call
	mu    sync.Mutex
	cache map[string]*pluginAnswer
}

// plugin is one entry of a CredentialProviderConfig.
type plugin struct {
	Name                 string    `json:"name"`
	MatchImages          []string  `json:"matchImages"`
	DefaultCacheDuration *duration `json:"defaultCacheDuration"`
	APIVersion           string    `json:"apiVersion"`
	Args                 []string  `json:"args"`
	Env                  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	TokenAttributes json.RawMessage `json:"tokenAttributes"`
}

// duration is a metav1.Duration: a Go duration in a string.
type duration time.Duration

func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	*d = duration(v)
	return err
}

// pluginAnswer is a CredentialProviderResponse with its expiry time.
type pluginAnswer struct {
	Kind          string    `json:"kind"`
	APIVersion    string    `json:"apiVersion"`
	CacheKeyType  string    `json:"cacheKeyType"`
	CacheDuration *duration `json:"cacheDuration"`
	Auth          map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`

	expires time.Time
}

// LoadPlugins reads a CredentialProviderConfig, like the kubelet's package credentialprovider. The plugins are programs in
// dir. A plugin that fails is reported to warn and skipped, as in the kubelet, because the image may need no login.
func LoadPlugins(config, dir string, now func() time.Time, warn func(error)) (*Plugins, error) {
	dir, err := filepath.Abs(dir) // exec would look up a bare name in PATH
	if err != nil {
		return nil, err
	}
	p, err := loadPlugins(config, dir)
	if err != nil {
		return nil, &Error{text: "credential plugins of " + config + ": " + bounded.Reason(err), err: err,
			hint: "the file is a CredentialProviderConfig, as the kubelet reads it"}
	}
	p.now, p.warn = now, warn
	return p, nil
}

func loadPlugins(config, dir string) (*Plugins, error) {
	text, err := bounded.ReadFile(config, bounded.Config)
	if err != nil {
		return nil, err
	}
	var file struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Providers  []plugin `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	if file.Kind != "CredentialProviderConfig" || !isPluginVersion(pluginConfigGroup, file.APIVersion) {
		return nil, fmt.Errorf("invalid kind and version %q %q: must be CredentialProviderConfig of %sv1", file.Kind, file.APIVersion, pluginConfigGroup)
	}
	if len(file.Providers) == 0 {
		return nil, errors.New("it has no providers")
	}
	names := map[string]bool{}
	for _, p := range file.Providers {
		if err := p.validate(dir); err != nil {
			return nil, fmt.Errorf("provider %q: %w", p.Name, err)
		}
		if names[p.Name] {
			return nil, fmt.Errorf("provider %q: the name is there twice", p.Name)
		}
		names[p.Name] = true
	}
	return &Plugins{dir: dir, plugins: file.Providers, cache: map[string]*pluginAnswer{}}, nil
}

func isPluginVersion(group, apiVersion string) bool {
	version, ok := strings.CutPrefix(apiVersion, group)
	return ok && slices.Contains(pluginVersions, version)
}

// validate checks an entry by the kubelet's rules. It also refuses tokenAttributes, which need an API server.
func (p *plugin) validate(dir string) error {
	switch {
	case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ "):
		return errors.New("invalid name: must be a file name without spaces")
	case len(p.MatchImages) == 0:
		return errors.New("matchImages is empty")
	case p.DefaultCacheDuration == nil || *p.DefaultCacheDuration < 0:
		return errors.New("defaultCacheDuration is missing or negative")
	case !isPluginVersion(pluginGroup, p.APIVersion):
		return fmt.Errorf("invalid apiVersion %q: must be %sv1", p.APIVersion, pluginGroup)
	case p.TokenAttributes != nil:
		return errors.New("tokenAttributes wants tokens of service accounts, which only an API server issues")
	}
	for _, pattern := range p.MatchImages {
		u, err := parseRegistry(pattern)
		if err != nil {
			return fmt.Errorf("matchImages %q: %w", pattern, err)
		}
		if _, err := path.Match(u.Hostname(), ""); err != nil || u.Hostname() == "" {
			return fmt.Errorf("invalid matchImages %q: must be a host with an optional port and path", pattern)
		}
	}
	if _, err := exec.LookPath(filepath.Join(dir, p.Name)); err != nil {
		return fmt.Errorf("there is no program of that name in %s", dir)
	}
	return nil
}

// lookup returns the credentials of the first plugin that has any for the image, or nil.
func (ps *Plugins) lookup(ctx context.Context, image string) *runtimeapi.AuthConfig {
	for i := range ps.plugins {
		p := &ps.plugins[i]
		if !slices.ContainsFunc(p.MatchImages, func(pattern string) bool { return MatchesImage(pattern, image) }) {
			continue
		}
		answer, err := ps.ask(ctx, p, image)
		if err != nil {
			ps.warn(fmt.Errorf("credential plugin %s: %w", filepath.Join(ps.dir, p.Name), err))
			continue
		}
		if a := answer.find(image); a != nil {
			return a
		}
	}
	return nil
}

func (a *pluginAnswer) find(image string) *runtimeapi.AuthConfig {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(a.Auth)), func(key string) bool { return !MatchesImage(key, image) })
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, byLength)
	e := a.Auth[keys[0]]
	return &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password}
}

func (ps *Plugins) ask(ctx context.Context, p *plugin, image string) (*pluginAnswer, error) {
	registry, _, _ := strings.Cut(image, "/")
	ps.mu.Lock()
	for _, key := range []string{"Image " + image, "Registry " + registry, "Global "} {
		if a := ps.cache[p.Name+" "+key]; a != nil && ps.now().Before(a.expires) {
			ps.mu.Unlock()
			return a, nil
		}
	}
	ps.mu.Unlock()
	select {
	case r := <-ps.calls.DoChan(p.Name+" "+image, func() (any, error) { return ps.call(ctx, p, image, registry) }):
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*pluginAnswer), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call runs the plugin and caches its answer. cacheDuration in the answer takes precedence over defaultCacheDuration in
// the configuration.
func (ps *Plugins) call(ctx context.Context, p *plugin, image, registry string) (*pluginAnswer, error) {
	a, err := ps.run(ctx, p, image)
	if err != nil {
		return nil, err
	}
	key, ok := map[string]string{"Image": image, "Registry": registry, "Global": ""}[a.CacheKeyType]
	if !ok {
		return nil, errors.New("invalid cacheKeyType in its answer: must be Image, Registry or Global")
	}
	keep := *p.DefaultCacheDuration
	if a.CacheDuration != nil {
		keep = *a.CacheDuration
	}
	if keep > 0 {
		a.expires = ps.now().Add(time.Duration(keep))
		ps.mu.Lock()
		ps.cache[p.Name+" "+a.CacheKeyType+" "+key] = a
		ps.mu.Unlock()
	}
	return a, nil
}

// run executes the plugin with a CredentialProviderRequest on stdin and decodes the response from stdout.
func (ps *Plugins) run(ctx context.Context, p *plugin, image string) (*pluginAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pluginTimeout, fmt.Errorf("none after %s", pluginTimeout))
	defer cancel()
	request, err := json.Marshal(map[string]string{"kind": "CredentialProviderRequest", "apiVersion": p.APIVersion, "image": image})
	if err != nil {
		return nil, err
	}
	cmd := proctree.Command(ctx, filepath.Join(ps.dir, p.Name), p.Args...)
	cmd.Env = os.Environ()
	for _, v := range p.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	out := &limitedBuffer{left: maxAnswer}
	// Stderr is discarded, because it may contain a secret.
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = bytes.NewReader(request), out, outputDelay
	switch err := cmd.Run(); {
	case ctx.Err() != nil && err != nil:
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, err
	}
	a := &pluginAnswer{}
	if json.Unmarshal(out.text.Bytes(), a) != nil || a.Kind != "CredentialProviderResponse" { // the JSON error would quote part of the secret
		return nil, errors.New("its answer is not a CredentialProviderResponse")
	}
	if a.APIVersion != p.APIVersion {
		return nil, fmt.Errorf("invalid apiVersion in its answer: must be %s", p.APIVersion)
	}
	return a, nil
}

// MatchesImage reports whether a keyring entry matches an image, by the rules of the kubelet's URLsMatch: each wildcard
// in the host matches within one dot-separated part, the port is equal, and the path is a prefix. Unlike in the
// kubelet, the prefix ends at a slash: example.com/a does not match example.com/ab. The image must be a full name, such
// as docker.io/library/busybox.
func MatchesImage(entry, image string) bool {
	e, err := parseRegistry(entry)
	if err != nil {
		return false
	}
	i, err := parseRegistry(image)
	if err != nil || e.Port() != i.Port() || strings.Count(e.Hostname(), ".") != strings.Count(i.Hostname(), ".") {
		return false
	}
	if ok, err := path.Match(e.Hostname(), i.Hostname()); err != nil || !ok {
		return false
	}
	return e.Path == "" || i.Path == e.Path || strings.HasPrefix(i.Path, e.Path+"/")
}

// parseRegistry parses the key of a credential: a registry, with or without a scheme and a path. It maps the other hosts
// of docker.io to docker.io and drops a path that is only the API version.
func parseRegistry(entry string) (*url.URL, error) {
	entry = strings.TrimPrefix(strings.TrimPrefix(entry, "https://"), "http://")
	u, err := url.Parse("https://" + entry)
	if err != nil {
		return nil, errors.New("must be a host with an optional port and path")
	}
	if u.Host == "index.docker.io" || u.Host == "registry-1.docker.io" {
		u.Host = "docker.io"
	}
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "/v1" || u.Path == "/v2" {
		u.Path = ""
	}
	return u, nil
}

// byLength sorts the most specific entries of a keyring first.
func byLength(a, b string) int {
	if len(a) != len(b) {
		return len(b) - len(a)
	}
	return strings.Compare(a, b)
}
