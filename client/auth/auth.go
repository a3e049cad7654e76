// Package auth finds the credentials for a registry: in docker's DOCKER_AUTH_CONFIG and config.json, with credential
// helpers, in podman's auth.json, or by the kubelet's credential plugins. [Lookup] is the main entry point.
//
// The package does not write credentials to disk or print them, and its errors never contain any. Answers of plugins
// are cached in memory.
package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/credentials"
	"github.com/docker/cli/cli/config/types"
	helpers "github.com/docker/docker-credential-helpers/credentials"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/proctree"
)

// dockerHubKey is docker's key for the credentials of docker.io.
const dockerHubKey = "https://index.docker.io/v1/"

// Options says where to look for credentials.
type Options struct {
	AuthFile  string // value of --authfile; must exist
	LookupEnv func(string) (string, bool)
	Plugins   *Plugins  // tried before any file; may be nil
	Stderr    io.Writer // stderr of credential helpers, which may ask the user to touch a key; may be nil
}

// Error reports that a credential store cannot be used.
type Error struct {
	text, hint string
	err        error
}

func (e *Error) Error() string { return e.text }

func (e *Error) Hint() string { return e.hint }

func (e *Error) Unwrap() error { return e.err }

// Lookup finds the credentials for an image's registry. It returns nil without an error if it finds nothing, because the
// registry may need none.
func Lookup(ctx context.Context, image string, o Options) (*runtimeapi.AuthConfig, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, nil // an image id has no registry
	}
	if o.Plugins != nil {
		if a := o.Plugins.lookup(ctx, named.Name()); a != nil || ctx.Err() != nil {
			return a, context.Cause(ctx)
		}
	}
	if o.AuthFile == "" {
		if text, _ := o.LookupEnv(configfile.DockerEnvConfigKey); text != "" {
			a, err := find(ctx, configfile.DockerEnvConfigKey, []byte(text), named, o.Stderr)
			if a != nil || err != nil {
				return a, err
			}
		}
	}
	path, err := o.file()
	if path == "" || err != nil {
		return nil, err
	}
	text, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return find(ctx, path, text, named, o.Stderr)
}

// file returns the first auth file that exists. A file that the user named must exist.
func (o Options) file() (string, error) {
	if o.AuthFile != "" {
		if _, err := os.Stat(o.AuthFile); err != nil {
			return "", &Error{text: "auth file " + o.AuthFile + ": " + bounded.Reason(err), hint: "give a file as `docker login` or `podman login` writes it", err: err}
		}
		return o.AuthFile, nil
	}
	for _, path := range o.places() {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", nil
}

func (o Options) places() []string {
	var out []string
	add := func(env string, below ...string) {
		if v, ok := o.LookupEnv(env); ok && v != "" {
			out = append(out, filepath.Join(append([]string{v}, below...)...))
		}
	}
	add("REGISTRY_AUTH_FILE")
	add("DOCKER_CONFIG", "config.json")
	add("HOME", ".docker", "config.json")
	add("XDG_RUNTIME_DIR", "containers", "auth.json")
	return out
}

func unreadable(name string, err error) error {
	return &Error{text: "read credentials from " + name + ": " + bounded.Reason(err), hint: "--authfile names another file", err: err}
}

// find looks up the image's own entry, then its parent paths as podman does, and last its registry as docker does. name
// is the file or the variable with the text.
func find(ctx context.Context, name string, text []byte, named reference.Named, stderr io.Writer) (*runtimeapi.AuthConfig, error) {
	file := configfile.New(name)
	if err := file.LoadFromReader(bytes.NewReader(text)); err != nil {
		return nil, unreadable(name, err)
	}
	if name == configfile.DockerEnvConfigKey { // as for docker, the variable only has credentials
		file.CredentialsStore, file.CredentialHelpers = "", nil
	}
	domain := reference.Domain(named)
	for key := named.Name(); strings.Contains(key, "/"); key = key[:strings.LastIndexByte(key, '/')] {
		if entry, ok := file.AuthConfigs[key]; ok {
			if a := convert(entry); a != nil {
				return a, nil
			}
		}
	}
	keys := []string{domain}
	if domain == "docker.io" {
		keys = []string{dockerHubKey, "docker.io"}
	}
	for _, key := range keys {
		a, err := ask(ctx, file, key, stderr)
		if err != nil {
			return nil, &Error{
				text: fmt.Sprintf("credentials for %s: %s", domain, err),
				hint: "check credsStore and credHelpers in " + file.Filename + ", or give --creds or --authfile", err: err,
			}
		}
		if a != nil {
			return a, nil
		}
	}
	return nil, nil
}

// ask returns the credentials of one registry. A credential helper takes precedence over the entry in the file.
func ask(ctx context.Context, file *configfile.ConfigFile, registry string, stderr io.Writer) (*runtimeapi.AuthConfig, error) {
	var entry types.AuthConfig
	var err error
	if helper := helperFor(file, registry); helper == "" {
		entry, err = credentials.NewFileStore(file).Get(registry) // file.GetAuthConfig would read DOCKER_AUTH_CONFIG of this process
	} else if entry, err = runHelper(ctx, helper, registry, stderr); err != nil {
		err = fmt.Errorf("%s: %w", helper, err)
	}
	return convert(entry), err
}

func convert(e types.AuthConfig) *runtimeapi.AuthConfig {
	if e.Username == "" && e.Password == "" && e.Auth == "" && e.IdentityToken == "" && e.RegistryToken == "" {
		return nil
	}
	a := &runtimeapi.AuthConfig{
		Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken,
	}
	if e.Username == "" {
		a.Auth = e.Auth
	}
	return a
}

// ParseCreds parses user:password. The password may contain colons. If there is no password, complete is false and the
// caller has to ask for it.
func ParseCreds(s string) (_ *runtimeapi.AuthConfig, complete bool, _ error) {
	user, password, ok := strings.Cut(s, ":")
	if user == "" {
		return nil, false, errors.New("malformed credentials: must be user:password")
	}
	return &runtimeapi.AuthConfig{Username: user, Password: password}, ok, nil
}

// ParseBase64 parses the base64 form of user:password that config.json contains.
func ParseBase64(s string) (*runtimeapi.AuthConfig, error) {
	s = strings.TrimRight(strings.TrimSpace(s), "=")
	text, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		text, err = base64.RawURLEncoding.DecodeString(s)
	}
	if err != nil || !utf8.Valid(text) {
		return nil, errors.New("malformed credentials: must be the base64 form of user:password")
	}
	a, complete, err := ParseCreds(strings.TrimRight(string(text), "\x00"))
	if err != nil || !complete {
		return nil, errors.New("malformed credentials: must be the base64 form of user:password")
	}
	return a, nil
}

const (
	maxAnswer   = 1 << 20     // limit of a credential helper's answer in bytes
	outputDelay = time.Second // wait after a helper has ended: a child that it leaves behind may keep the pipe open
	tokenUser   = "<token>"   // user name that marks the secret as an identity token
)

// helperFor returns the credential helper for a registry, or "" if the credentials are in the file itself.
func helperFor(file *configfile.ConfigFile, registry string) string {
	suffix, own := file.CredentialHelpers[registry]
	if !own {
		suffix = file.CredentialsStore
	}
	if suffix == "" {
		return ""
	}
	return "docker-credential-" + suffix
}

// runHelper asks a credential helper for the credentials of a registry. docker's own library does not stop a helper
// when the context ends, reads its output without a limit, and includes the output, which may be the secret, in its
// errors.
func runHelper(ctx context.Context, helper, registry string, stderr io.Writer) (types.AuthConfig, error) {
	cmd := proctree.Command(ctx, helper, helpers.ActionGet)
	answer := &limitedBuffer{left: maxAnswer}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(registry), answer, stderr
	cmd.WaitDelay = outputDelay
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && err != nil:
		return types.AuthConfig{}, fmt.Errorf("no answer: %w", context.Cause(ctx))
	case helpers.IsErrCredentialsNotFoundMessage(answer.text.String()):
		return types.AuthConfig{}, nil
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		if notRun, ok := errors.AsType[*exec.Error](err); ok {
			err = notRun.Err // the outer error would repeat the program's name
		}
		return types.AuthConfig{}, err
	}
	var login helpers.Credentials
	if json.Unmarshal(answer.text.Bytes(), &login) != nil { // the JSON error would quote part of the secret
		return types.AuthConfig{}, errNoAnswer
	}
	if login.Username == tokenUser {
		return types.AuthConfig{IdentityToken: login.Secret}, nil
	}
	return types.AuthConfig{Username: login.Username, Password: login.Secret}, nil
}

var errNoAnswer = errors.New("its output is not in the form of credentials")

type limitedBuffer struct {
	text bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, fmt.Errorf("it printed more than %d bytes", maxAnswer)
	}
	b.left -= len(p)
	return b.text.Write(p)
}
