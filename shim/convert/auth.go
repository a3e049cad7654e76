package convert

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/registry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RegistryAuth is the value of the engine's registry authentication header,
// "" for no credentials. The CRI's auth field is "user:password" in base64 and
// counts where user name and password are not given.
func RegistryAuth(a *runtimeapi.AuthConfig) (string, error) {
	out := registry.AuthConfig{
		Username:      a.GetUsername(),
		Password:      a.GetPassword(),
		ServerAddress: a.GetServerAddress(),
		IdentityToken: a.GetIdentityToken(),
		RegistryToken: a.GetRegistryToken(),
	}
	if out.Username == "" && out.Password == "" && a.GetAuth() != "" {
		user, password, err := splitAuth(a.GetAuth())
		if err != nil {
			return "", err
		}
		out.Username, out.Password = user, password
	}
	if out == (registry.AuthConfig{}) || out == (registry.AuthConfig{ServerAddress: out.ServerAddress}) {
		return "", nil
	}
	header, err := registry.EncodeAuthConfig(out)
	if err != nil {
		return "", fmt.Errorf("registry credentials: %w", err)
	}
	return header, nil
}

// splitAuth names no part of what it was given: it is a secret.
func splitAuth(text string) (user, password string, err error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimRight(text, "\x00\n"))
	if err != nil {
		return "", "", fmt.Errorf("auth is not base64: %w", errdefs.ErrInvalidArgument)
	}
	user, password, ok := strings.Cut(string(b), ":")
	if !ok || user == "" {
		return "", "", fmt.Errorf("auth is not base64 of user:password: %w", errdefs.ErrInvalidArgument)
	}
	return user, strings.TrimRight(password, "\x00"), nil
}
