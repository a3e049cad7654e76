package auth_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/auth"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(vars map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) { v, ok := vars[key]; return v, ok }
}

func user(name, password string) *runtimeapi.AuthConfig {
	return &runtimeapi.AuthConfig{Username: name, Password: password}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "config.json"), fmt.Sprintf(`{"auths": {
		"https://index.docker.io/v1/": {"auth": %q},
		"registry.example:5000": {"auth": %q},
		"https://old.example/v1/": {"auth": %q},
		"quay.io": {"auth": %q},
		"quay.io/team": {"auth": %q},
		"quay.io/team/app": {"username": "app", "password": "p4"},
		"token.example": {"identitytoken": "t1"},
		"empty.example": {}
	}}`, b64("hub:p1"), b64("local:p:2"), b64("old:p3"), b64("quay:q1"), b64("team:q2")), 0o600)
	for image, want := range map[string]*runtimeapi.AuthConfig{
		"busybox":                     user("hub", "p1"),
		"docker.io/library/busybox:1": user("hub", "p1"),
		"registry.example:5000/a/b@sha256:" + strings.Repeat("a", 64): user("local", "p:2"),
		"old.example/x":         user("old", "p3"),
		"quay.io/other/x":       user("quay", "q1"),
		"quay.io/team/other":    user("team", "q2"),
		"quay.io/team/app:2":    user("app", "p4"),
		"token.example/x":       {IdentityToken: "t1"},
		"empty.example/x":       nil,
		"elsewhere.example/x":   nil,
		strings.Repeat("a", 64): nil,
		"NOT AN IMAGE":          nil,
	} {
		got, err := auth.Lookup(t.Context(), image, auth.Options{AuthFile: file})
		if err != nil {
			t.Errorf("%s: %v", image, err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", image, diff)
		}
	}
}

func TestLookupPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	entry := func(path, name string) string {
		return write(t, filepath.Join(dir, path), fmt.Sprintf(`{"auths":{"r.example":{"auth":%q}}}`, b64(name+":x")), 0o600)
	}
	flag, podman := entry("flag.json", "flag"), entry("env.json", "env")
	entry("conf/config.json", "dockerconfig")
	entry("home/.docker/config.json", "home")
	entry("run/containers/auth.json", "run")
	at := func(name string) string { return filepath.Join(dir, name) }
	tests := []struct {
		want, file string
		env        map[string]string
	}{
		{"flag", flag, map[string]string{"REGISTRY_AUTH_FILE": podman}},
		{"env", "", map[string]string{"REGISTRY_AUTH_FILE": podman, "DOCKER_CONFIG": at("conf")}},
		{"dockerconfig", "", map[string]string{"DOCKER_CONFIG": at("conf"), "HOME": at("home")}},
		{"home", "", map[string]string{"DOCKER_CONFIG": at("none"), "HOME": at("home"), "XDG_RUNTIME_DIR": at("run")}},
		{"run", "", map[string]string{"HOME": at("none"), "XDG_RUNTIME_DIR": at("run")}},
		{"", "", nil},
	}
	for _, tt := range tests {
		got, err := auth.Lookup(t.Context(), "r.example/x", auth.Options{AuthFile: tt.file, LookupEnv: env(tt.env)})
		if err != nil || got.GetUsername() != tt.want {
			t.Errorf("got %q, %v; want %q", got.GetUsername(), err, tt.want)
		}
	}
}

// helper puts a credential helper into the PATH, which has to be the
// process's own: docker's library looks for it there.
func helper(t *testing.T, script string) auth.Options {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "docker-credential-crishimtest"), "#!/bin/sh\n"+script, 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return auth.Options{AuthFile: write(t, filepath.Join(dir, "config.json"), `{"credHelpers":{"h.example":"crishimtest"}}`, 0o600)}
}

func TestCredentialHelper(t *testing.T) {
	o := helper(t, `read server; echo "{\"ServerURL\":\"$server\",\"Username\":\"from-helper\",\"Secret\":\"s3\"}"`)
	got, err := auth.Lookup(t.Context(), "h.example/x", o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(user("from-helper", "s3"), got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestCredentialHelperWithoutAnEntry(t *testing.T) {
	o := helper(t, `echo "credentials not found in native keychain"; exit 1`)
	if got, err := auth.Lookup(t.Context(), "h.example/x", o); got != nil || err != nil {
		t.Errorf("got %v, %v; want neither", got, err)
	}
}

func TestCredentialHelperThatFails(t *testing.T) {
	o := helper(t, `echo "keychain is locked"; exit 1`)
	_, err := auth.Lookup(t.Context(), "h.example/x", o)
	var e *auth.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "h.example") || !strings.Contains(e.Hint(), "credHelpers") {
		t.Errorf("got %v", err)
	}
}

func TestCredentialHelperThatHangs(t *testing.T) {
	hanging := write(t, filepath.Join(t.TempDir(), "hanging"), "", 0o600) // it ends with the test
	o := helper(t, "exec >/dev/null 2>&1; while [ -e "+hanging+" ]; do sleep 0.1; done")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := auth.Lookup(ctx, "h.example/x", o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it cancelled", err)
	}
}

func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, o := range map[string]auth.Options{
		"named, but not there": {AuthFile: filepath.Join(dir, "none")},
		"no JSON":              {AuthFile: write(t, filepath.Join(dir, "bad.json"), `{"auths": {"x": {"auth": "secret`, 0o600)},
		"broken entry":         {AuthFile: write(t, filepath.Join(dir, "bad2.json"), `{"auths": {"r.example": {"auth": "!!secret!!"}}}`, 0o600)},
		"in a default place":   {LookupEnv: env(map[string]string{"DOCKER_CONFIG": filepath.Dir(write(t, filepath.Join(dir, "d", "config.json"), "]", 0o600))})},
	} {
		_, err := auth.Lookup(t.Context(), "r.example/x", o)
		var e *auth.Error
		if !errors.As(err, &e) || e.Hint() == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	a, complete, err := auth.ParseCreds("joe:a:b")
	if err != nil || !complete || a.GetUsername() != "joe" || a.GetPassword() != "a:b" {
		t.Errorf("got %v, %t, %v", a, complete, err)
	}
	if _, complete, err := auth.ParseCreds("joe"); err != nil || complete {
		t.Errorf("without a password: got %t, %v", complete, err)
	}
	for _, s := range []string{b64("joe:pw"), strings.TrimRight(b64("joe:pw"), "="), " " + b64("joe:pw") + "\n"} {
		if a, err := auth.ParseBase64(s); err != nil || a.GetUsername() != "joe" || a.GetPassword() != "pw" {
			t.Errorf("%q: got %v, %v", s, a, err)
		}
	}
	for _, s := range []string{"", "hunter2", "!", b64("nocolon"), b64(":x"), b64("\xff\xfe:x")} {
		if _, err := auth.ParseBase64(s); !errors.Is(err, auth.ErrMalformed) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: got %v", s, err)
		}
	}
	if _, _, err := auth.ParseCreds(":hunter2"); !errors.Is(err, auth.ErrMalformed) || strings.Contains(err.Error(), "hunter") {
		t.Errorf("got %v", err)
	}
}
