package kuberuntime

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config/types"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
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

// secretAuths reads a pull secret of either form and picks what fits, the most specific
// entry first. As for a kubelet, one entry that is malformed spoils its secret.
func secretAuths(secret *v1.Secret, image string) ([]*runtimeapi.AuthConfig, error) {
	key := v1.DockerConfigJsonKey
	data, found := secret.Data[key]
	if !found {
		key = v1.DockerConfigKey
		if data, found = secret.Data[key]; !found {
			return nil, nil
		}
		data = slices.Concat([]byte(`{"auths":`), data, []byte("}"))
	}
	// docker/cli's own reader refuses what a kubelet takes: an empty user name next to a token, base64
	// without padding, and other keys of the file that are not of the types it knows.
	var file struct {
		Auths map[string]types.AuthConfig `json:"auths"`
	}
	err := json.Unmarshal(data, &file)
	for server, e := range file.Auths {
		e.ServerAddress = server
		if e.Auth != "" && err == nil {
			e.Username, e.Password, err = decodeAuth(e.Auth)
		}
		file.Auths[server] = e
	}
	if err != nil {
		// The decoder's own text may hold a password.
		return nil, fmt.Errorf("%s is no docker configuration, or an auth in it is not the base64 form of user:password", key)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(slices.Collect(maps.Values(file.Auths)), func(e types.AuthConfig) bool {
		return !registryFits(e.ServerAddress, named.Name())
	})
	slices.SortFunc(entries, func(a, b types.AuthConfig) int {
		return cmp.Or(len(b.ServerAddress)-len(a.ServerAddress), strings.Compare(a.ServerAddress, b.ServerAddress))
	})
	var auths []*runtimeapi.AuthConfig
	for _, e := range entries {
		// No server, as the kubelet has it: containerd takes one for a URL, and entries seldom are.
		auths = append(auths, &runtimeapi.AuthConfig{
			Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken,
		})
	}
	return auths, nil
}

// decodeAuth reads the base64 form of user:password, with or without its padding.
func decodeAuth(auth string) (user, password string, err error) {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return "", "", err
	}
	user, password, found := strings.Cut(string(text), ":")
	if !found {
		return "", "", errors.New("no colon")
	}
	return user, strings.Trim(password, "\x00"), nil
}

// registryFits reports whether an entry is for an image. An entry may have a scheme, a path,
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
