package auth_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/auth"
)

const pluginEntry = `
- name: %s
  matchImages: ["*.dkr.example", "r.example:5000/team"]
  defaultCacheDuration: %s
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: ["get"]
  env: [{name: PLUGIN_USER, value: ada}]
`

func pluginFile(t *testing.T, providers string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "providers.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:" + providers
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeProgram writes a script while no process is forked: a child that holds the open file would keep it from running.
func writeProgram(path, script string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(script), 0o700)
}

// pluginProgram writes a plugin that appends its requests to a file in dir and prints answer.
func pluginProgram(t *testing.T, answer string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\n{ echo \"$1 $PLUGIN_USER\"; cat; echo; } >> " + dir + "/calls\ncat <<'END'\n" + answer + "\nEND\n"
	if strings.HasPrefix(answer, "#!") {
		script = answer
	}
	if err := writeProgram(filepath.Join(dir, "ecr"), script); err != nil {
		t.Fatal(err)
	}
	return dir
}

const pluginResponse = `{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":%q,` +
	`"auth":{"*.dkr.example":{"username":"ada","password":"wide"},"a.dkr.example/team":{"username":"ada","password":"narrow"}}}`

func TestPluginAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, image string
		want        *runtimeapi.AuthConfig
	}{
		{"a registry by its pattern", "b.dkr.example/app:1", &runtimeapi.AuthConfig{Username: "ada", Password: "wide"}},
		{"the longest entry first", "a.dkr.example/team/app", &runtimeapi.AuthConfig{Username: "ada", Password: "narrow"}},
		{"a path by whole elements", "a.dkr.example/teams", &runtimeapi.AuthConfig{Username: "ada", Password: "wide"}},
		{"another registry", "dkr.example/app", nil},
		{"a part of a host more", "x.a.dkr.example/app", nil},
		{"another port", "r.example/team/app", nil},
		{"a plugin without an entry for the image", "r.example:5000/team/app", nil},
		{"an image id", "sha256:" + strings.Repeat("a", 64), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := auth.LoadPlugins(pluginFile(t, fmt.Sprintf(pluginEntry, "ecr", "0s")), pluginProgram(t, fmt.Sprintf(pluginResponse, "Image")), time.Now, noWarning(t))
			if err != nil {
				t.Fatal(err)
			}
			got, err := auth.Lookup(t.Context(), tt.image, auth.Options{Plugins: p, LookupEnv: env(nil)})
			if err != nil || got.GetUsername() != tt.want.GetUsername() || got.GetPassword() != tt.want.GetPassword() {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// The request contains the image's full name without its tag, as the kubelet's do.
func TestPluginRequest(t *testing.T) {
	t.Parallel()
	dir := pluginProgram(t, fmt.Sprintf(pluginResponse, "Image"))
	p, err := auth.LoadPlugins(pluginFile(t, fmt.Sprintf(pluginEntry, "ecr", "0s")), dir, time.Now, noWarning(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := auth.Lookup(t.Context(), "b.dkr.example/app:1", auth.Options{Plugins: p, LookupEnv: env(nil)}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "calls"))
	want := "get ada\n" + `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"b.dkr.example/app","kind":"CredentialProviderRequest"}` + "\n"
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestPluginCache(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, duration string
		images         []string
		after          time.Duration
		calls          int
	}{
		{"Image", "1h", []string{"a.dkr.example/x", "a.dkr.example/x", "a.dkr.example/y"}, 0, 2},
		{"Registry", "1h", []string{"a.dkr.example/x", "a.dkr.example/y", "b.dkr.example/x"}, 0, 2},
		{"Global", "1h", []string{"a.dkr.example/x", "b.dkr.example/x"}, 0, 1},
		{"Image", "0s", []string{"a.dkr.example/x", "a.dkr.example/x"}, 0, 2},
		{"Image", "1h", []string{"a.dkr.example/x", "a.dkr.example/x"}, time.Hour, 2},
	} {
		now := time.Now()
		dir := pluginProgram(t, fmt.Sprintf(pluginResponse, tt.kind))
		p, err := auth.LoadPlugins(pluginFile(t, fmt.Sprintf(pluginEntry, "ecr", tt.duration)), dir, func() time.Time { return now }, noWarning(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range tt.images {
			if got, err := auth.Lookup(t.Context(), image, auth.Options{Plugins: p, LookupEnv: env(nil)}); got == nil || err != nil {
				t.Errorf("%s: got %v, %v", image, got, err)
			}
			now = now.Add(tt.after)
		}
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		if got := strings.Count(string(text), "get ada"); got != tt.calls || err != nil {
			t.Errorf("%s for %s: got %d calls, want %d (%v)", tt.kind, tt.duration, got, tt.calls, err)
		}
	}
}

// If a plugin fails, a warning is printed and the auth file is used.
func TestPluginFailures(t *testing.T) {
	t.Parallel()
	login := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(login, []byte(`{"auths": {"a.dkr.example": {"username": "file", "password": "x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, answer, want string }{
		{"fails", "#!/bin/sh\necho secret >&2; echo secret; exit 3\n", ": exit status 3"},
		{"prints no JSON", "secret", ": its answer is not a CredentialProviderResponse"},
		{"prints another kind", `{"kind":"Secret"}`, ": its answer is not a CredentialProviderResponse"},
		{"prints another version", `{"kind":"CredentialProviderResponse","apiVersion":"v2"}`, `: invalid apiVersion in its answer: must be credentialprovider.kubelet.k8s.io/v1`},
		{"prints no key of the cache", `{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}`, `: invalid cacheKeyType in its answer: must be Image, Registry or Global`},
		{"prints too much", "#!/bin/sh\nhead -c 3000000 /dev/zero\nexit 0\n", ": it printed more than 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, warned := pluginProgram(t, tt.answer), ""
			p, err := auth.LoadPlugins(pluginFile(t, fmt.Sprintf(pluginEntry, "ecr", "1h")), dir, time.Now, func(err error) { warned = err.Error() })
			if err != nil {
				t.Fatal(err)
			}
			got, err := auth.Lookup(t.Context(), "a.dkr.example/x", auth.Options{Plugins: p, AuthFile: login, LookupEnv: env(nil)})
			if err != nil || got.GetUsername() != "file" || warned != "credential plugin "+dir+"/ecr"+tt.want {
				t.Errorf("got %v, %v, warning %q, want %s", got, err, warned, tt.want)
			}
		})
	}
}

func TestPluginConfigurations(t *testing.T) {
	t.Parallel()
	dir := pluginProgram(t, "")
	entry := func(old, replacement string) string {
		return strings.Replace(fmt.Sprintf(pluginEntry, "ecr", "1h"), old, replacement, 1)
	}
	for _, tt := range []struct{ providers, want string }{
		{" []", "it has no providers"},
		{entry("name: ecr", "name: ../ecr"), `provider "../ecr": invalid name: must be a file name without spaces`},
		{entry("name: ecr", "name: gcr"), `provider "gcr": there is no program of that name in ` + dir},
		{entry("", "") + fmt.Sprintf(pluginEntry, "ecr", "1h"), `provider "ecr": the name is there twice`},
		{entry(`matchImages: ["*.dkr.example", "r.example:5000/team"]`, "matchImages: []"), `provider "ecr": matchImages is empty`},
		{entry("*.dkr.example", "[.example"), `provider "ecr": matchImages "[.example": must be a host with an optional port and path`},
		{entry("defaultCacheDuration: 1h", "defaultCacheDuration: -1h"), `provider "ecr": defaultCacheDuration is missing or negative`},
		{entry("kubelet.k8s.io/v1", "kubelet.k8s.io/v9"), `provider "ecr": invalid apiVersion "credentialprovider.kubelet.k8s.io/v9": must be credentialprovider.kubelet.k8s.io/v1`},
		{entry("args:", "tokenAttributes: {}\n  args:"), `provider "ecr": tokenAttributes wants tokens of service accounts, which only an API server issues`},
		{entry("args:", "arguments:"), `unknown field "arguments"`},
	} {
		file := pluginFile(t, tt.providers)
		_, err := auth.LoadPlugins(file, dir, time.Now, noWarning(t))
		if err == nil || !strings.HasPrefix(err.Error(), "credential plugins of "+file+": ") || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func noWarning(t *testing.T) func(error) {
	t.Helper()
	return func(err error) { t.Errorf("warning: %v", err) }
}

// A slow plugin blocks neither other images nor a cancelled pull.
func TestPluginThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answer := fmt.Sprintf(pluginResponse, "Image")
	script := "#!/bin/sh\ncase $(cat) in *a.dkr*) sleep 60;; esac\ncat <<'END'\n" + answer + "\nEND\n"
	if err := writeProgram(filepath.Join(dir, "ecr"), script); err != nil {
		t.Fatal(err)
	}
	p, err := auth.LoadPlugins(pluginFile(t, fmt.Sprintf(pluginEntry, "ecr", "1h")), dir, time.Now, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	hanging, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := auth.Lookup(hanging, "a.dkr.example/x", auth.Options{Plugins: p, LookupEnv: env(nil)})
		ended <- err
	}()
	if got, err := auth.Lookup(t.Context(), "b.dkr.example/x", auth.Options{Plugins: p, LookupEnv: env(nil)}); got.GetPassword() != "wide" || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
