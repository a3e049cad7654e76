package kuberuntime

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	v1 "k8s.io/api/core/v1"
)

// credentials are those of the pod's imagePullSecrets that fit the image, then the host's.
// As for a kubelet, host credentials that cannot be read do not keep the others, or none,
// from being tried; missing tells of them, for the case that these do not help.
func (m *Manager) credentials(ctx context.Context, p *v1.Pod, image string, set *manifest.Set) (auths []*runtimeapi.AuthConfig, missing, err error) {
	for _, ref := range p.Spec.ImagePullSecrets {
		secret := set.Secrets[p.Namespace+"/"+ref.Name]
		if secret == nil {
			return nil, nil, fmt.Errorf("secret %s/%s not found", p.Namespace, ref.Name)
		}
		found, err := secretAuths(secret, image)
		if err != nil {
			return nil, nil, fmt.Errorf("secret %s/%s: %w", p.Namespace, ref.Name, err)
		}
		auths = append(auths, found...)
	}
	if m.o.Auth == nil {
		return auths, nil, nil
	}
	host, missing := m.o.Auth(ctx, image)
	if host != nil {
		auths = append(auths, host)
	}
	return auths, missing, ctx.Err()
}

// dockerAuth is one entry of a docker configuration file.
type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// secretAuths reads a pull secret of either form and picks what fits, the most specific
// entry first.
func secretAuths(secret *v1.Secret, image string) ([]*runtimeapi.AuthConfig, error) {
	entries := map[string]dockerAuth{}
	if data := secret.Data[v1.DockerConfigJsonKey]; data != nil {
		var config struct {
			Auths map[string]dockerAuth `json:"auths"`
		}
		if err := json.Unmarshal(data, &config); err != nil {
			return nil, fmt.Errorf("%s is no docker configuration", v1.DockerConfigJsonKey) // the text may hold a password
		}
		entries = config.Auths
	} else if data := secret.Data[v1.DockerConfigKey]; data != nil {
		if err := json.Unmarshal(data, &entries); err != nil {
			return nil, fmt.Errorf("%s is no docker configuration", v1.DockerConfigKey)
		}
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, err
	}
	var keys []string
	for key := range entries {
		if registryFits(key, named.Name()) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return len(b) - len(a) })
	var auths []*runtimeapi.AuthConfig
	for _, key := range keys {
		auth, err := entries[key].config(key)
		if err != nil {
			return nil, err
		}
		auths = append(auths, auth)
	}
	return auths, nil
}

func (a dockerAuth) config(server string) (*runtimeapi.AuthConfig, error) {
	if a.Username == "" && a.Auth != "" {
		text, err := base64.StdEncoding.DecodeString(a.Auth)
		if err != nil {
			return nil, fmt.Errorf("auth of %s is not base64", server)
		}
		user, password, ok := strings.Cut(string(text), ":")
		if !ok {
			return nil, fmt.Errorf("auth of %s is not user:password", server)
		}
		a.Username, a.Password = user, strings.TrimRight(password, "\x00")
	}
	// No server, as the kubelet has it: containerd takes one for a URL, and entries seldom are.
	return &runtimeapi.AuthConfig{
		Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
	}, nil
}

// registryFits says whether an entry is for an image. An entry may have a scheme, a path,
// and wildcards in its host, as Kubernetes documents it.
func registryFits(entry, image string) bool {
	entry = strings.TrimPrefix(strings.TrimPrefix(entry, "https://"), "http://")
	host, prefix, _ := strings.Cut(entry, "/")
	prefix = strings.Trim(prefix, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	imageHost, imagePath, _ := strings.Cut(image, "/")
	if strings.Count(host, ".") != strings.Count(imageHost, ".") {
		return false
	}
	if ok, err := path.Match(host, imageHost); err != nil || !ok {
		return false
	}
	return prefix == "" || imagePath == prefix || strings.HasPrefix(imagePath, prefix+"/")
}
