package auth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/auth"
	"github.com/crishim/crishim/internal/test"
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

// TestLookupPodmansDockerHub: podman's key of Docker Hub is docker.io.
func TestLookupPodmansDockerHub(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "auth.json"), fmt.Sprintf(`{"auths": {"docker.io": {"auth": %q}}}`, b64("hub:p1")), 0o600)
	got, err := auth.Lookup(t.Context(), "busybox", auth.Options{AuthFile: file})
	if diff := cmp.Diff(user("hub", "p1"), got, protocmp.Transform()); diff != "" || err != nil {
		t.Error(diff, err)
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

// TestLookupInTheEnvironment: DOCKER_AUTH_CONFIG wins over the default files and their helpers, and --authfile over it.
func TestLookupInTheEnvironment(t *testing.T) {
	t.Setenv("DOCKER_AUTH_CONFIG", fmt.Sprintf(`{"auths":{"r.example":{"auth":%q}}}`, b64("process:x"))) // only LookupEnv counts
	of := func(name string) string { return fmt.Sprintf(`{"auths":{"r.example":{"auth":%q}}}`, b64(name+":x")) }
	home := t.TempDir()
	file := write(t, filepath.Join(home, ".docker", "config.json"), of("file"), 0o600)
	withHelper := t.TempDir()
	write(t, filepath.Join(withHelper, "config.json"), `{"credHelpers":{"r.example":"crishimnone"}}`, 0o600)
	for name, tt := range map[string]struct {
		want, file string
		env        map[string]string
	}{
		"without a file":   {"env", "", map[string]string{"DOCKER_AUTH_CONFIG": of("env")}},
		"with a file":      {"env", "", map[string]string{"DOCKER_AUTH_CONFIG": of("env"), "HOME": home}},
		"with a helper":    {"env", "", map[string]string{"DOCKER_AUTH_CONFIG": of("env"), "DOCKER_CONFIG": withHelper}},
		"naming a helper":  {"env", "", map[string]string{"DOCKER_AUTH_CONFIG": strings.Replace(of("env"), "{", `{"credsStore":"missing","credHelpers":{"r.example":"missing"},`, 1)}},
		"another registry": {"file", "", map[string]string{"DOCKER_AUTH_CONFIG": `{"auths":{"s.example":{"auth":"dTpw"}}}`, "HOME": home}},
		"with --authfile":  {"file", file, map[string]string{"DOCKER_AUTH_CONFIG": of("env")}},
		"only the process": {"file", "", map[string]string{"HOME": home}},
	} {
		got, err := auth.Lookup(t.Context(), "r.example/x", auth.Options{AuthFile: tt.file, LookupEnv: env(tt.env)})
		if err != nil || got.GetUsername() != tt.want {
			t.Errorf("%s: got %q, %v; want %q", name, got.GetUsername(), err, tt.want)
		}
	}
}

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

func TestCredentialHelperWithAToken(t *testing.T) {
	o := helper(t, `echo '{"Username":"<token>","Secret":"t2"}'`)
	got, err := auth.Lookup(t.Context(), "h.example/x", o)
	if diff := cmp.Diff(&runtimeapi.AuthConfig{IdentityToken: "t2"}, got, protocmp.Transform()); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestCredentialHelperWithoutAnEntry(t *testing.T) {
	o := helper(t, `echo "credentials not found in native keychain"; exit 1`)
	if got, err := auth.Lookup(t.Context(), "h.example/x", o); got != nil || err != nil {
		t.Errorf("got %v, %v; want neither", got, err)
	}
}

// The output of a helper may contain a secret even if the helper fails or the output is invalid.
func TestCredentialHelperKeepsItsOutput(t *testing.T) {
	for name, script := range map[string]string{
		"fails after its answer":  `echo '{"Username":"u-s3cret","Secret":"p-s3cret"}'; exit 1`,
		"fails with a word":       `echo s3cret; exit 3`,
		"fails in several lines":  `printf 's3cret\nhint: s3cret\n'; exit 1`,
		"prints no JSON":          `echo s3cret`,
		"prints JSON of no login": `echo '["s3cret"]'`,
		"prints half an answer":   `echo '{"Username":"u-s3cret","Secret":"p-s3cret"'`,
		"prints two answers":      `echo '{"Username":"u-s3cret","Secret":"p-s3cret"}{"s3cret"'`,
		"is ended by a signal":    `echo s3cret; kill -9 $$`,
		"prints without an end":   `yes s3cret`,
		"prints nothing":          ``,
	} {
		t.Run(name, func(t *testing.T) {
			o := helper(t, script)
			_, err := auth.Lookup(t.Context(), "h.example/x", o)
			var e *auth.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "h.example") || !strings.Contains(err.Error(), "docker-credential-crishimtest") || !strings.Contains(e.Hint(), "credHelpers") {
				t.Fatalf("got %v, want an error that names the registry and the helper, with a hint", err)
			}
			for text := err; text != nil; text = errors.Unwrap(text) {
				if strings.Contains(text.Error()+e.Hint(), "s3cret") || strings.Contains(text.Error(), "\n") {
					t.Errorf("the error shows what the helper printed: %v", text)
				}
			}
		})
	}
}

func TestCredentialHelperThatIsNotThere(t *testing.T) {
	o := auth.Options{AuthFile: write(t, filepath.Join(t.TempDir(), "config.json"), `{"credsStore":"crishimnone"}`, 0o600)}
	_, err := auth.Lookup(t.Context(), "h.example/x", o)
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "docker-credential-crishimnone") {
		t.Errorf("got %v", err)
	}
}

// Cancelling the context kills a hanging helper and its children.
func TestCredentialHelperThatHangs(t *testing.T) {
	dir := t.TempDir()
	o := helper(t, "sh -c 'echo $$ >"+dir+"/child.new; mv "+dir+"/child.new "+dir+"/child; exec sleep 1000'; echo")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := auth.Lookup(ctx, "h.example/x", o)
		result <- err
	}()
	var child int
	test.Until(t, "the helper's child starts", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "child"))
		if err == nil {
			child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want it cancelled", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Lookup waits for a helper that hangs")
	}
	test.Until(t, "the helper's child ends", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// A helper may leave a background process, such as a cache of decrypted secrets, that keeps its output open. The answer
// is complete when the helper itself ends.
func TestCredentialHelperThatLeavesAChild(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() {
		text, _ := os.ReadFile(filepath.Join(dir, "child"))
		if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	})
	o := helper(t, `sleep 1000 & echo $! >`+dir+`/child; echo '{"Username":"from-helper","Secret":"s3"}'`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := auth.Lookup(ctx, "h.example/x", o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(user("from-helper", "s3"), got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, o := range map[string]auth.Options{
		"named, but not there": {AuthFile: filepath.Join(dir, "none")},
		"no JSON":              {AuthFile: write(t, filepath.Join(dir, "bad.json"), `{"auths": {"x": {"auth": "secret`, 0o600)},
		"broken entry":         {AuthFile: write(t, filepath.Join(dir, "bad2.json"), `{"auths": {"r.example": {"auth": "!!secret!!"}}}`, 0o600)},
		"in the environment":   {LookupEnv: env(map[string]string{"DOCKER_AUTH_CONFIG": `{"auths": {"r.example": {"auth": "!!secret!!"}}}`})},
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
		if _, err := auth.ParseBase64(s); err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: got %v", s, err)
		}
	}
	if _, _, err := auth.ParseCreds(":hunter2"); err == nil || strings.Contains(err.Error(), "hunter") {
		t.Errorf("got %v", err)
	}
}

func TestHelperSpeaksToTheUser(t *testing.T) {
	o := helper(t, `echo 'touch the key' >&2; echo '{"Username": "u", "Secret": "p"}'`)
	var said bytes.Buffer
	o.Stderr = &said
	if _, err := auth.Lookup(t.Context(), "h.example/app", o); err != nil {
		t.Fatal(err)
	}
	if said.String() != "touch the key\n" {
		t.Errorf("got %q", said.String())
	}
}
