package kuberuntime

import (
	"encoding/base64"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestSecretAuths covers which credentials of a pull secret are used, and their order.
func TestSecretAuths(t *testing.T) {
	t.Parallel()
	coded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, c := range map[string]struct {
		key, text, image string
		want             string // user/password/identity token/registry token for each entry
	}{
		"no docker secret": {"token", "x", "h.example/a", ""},
		"user and password": {
			v1.DockerConfigJsonKey, `{"auths": {"h.example": {"username": "u", "password": "p"}, "other.example": {"username": "o"}}}`, "h.example/a", "u/p//",
		},
		"auth": {v1.DockerConfigJsonKey, `{"auths": {"h.example": {"auth": "` + coded("u:p:q") + `"}}}`, "h.example/a", "u/p:q//"},
		"tokens": {
			v1.DockerConfigJsonKey, `{"auths": {"h.example": {"identitytoken": "i", "registrytoken": "r"}}}`, "h.example/a", "//i/r",
		},
		"legacy form": {v1.DockerConfigKey, `{"h.example": {"auth": "` + coded("u:p") + `", "email": "e"}}`, "h.example/a", "u/p//"},
		"the most specific first": {
			v1.DockerConfigJsonKey, `{"auths": {"*.example": {"username": "c"}, "h.example/a/b": {"username": "a"}, "https://h.example/v1/": {"username": "b"}, "h.example/c": {"username": "x"}, "h.exampl*": {"username": "d"}}}`,
			"h.example/a/b/c:1", "b/// a/// c/// d///",
		},
		"Docker Hub": {
			v1.DockerConfigJsonKey, `{"auths": {"https://index.docker.io/v1/": {"username": "u"}, "docker.io/other": {"username": "x"}}}`, "busybox", "u///",
		},
		"a path is whole":        {v1.DockerConfigJsonKey, `{"auths": {"h.example": {"username": "u"}, "h.example/team": {"username": "t"}}}`, "h.example/teams/app", "u///"},
		"a star is one label":    {v1.DockerConfigJsonKey, `{"auths": {"*.example.org": {"username": "u"}}}`, "b.a.example.org/app", ""},
		"a token without a user": {v1.DockerConfigJsonKey, `{"auths": {"h.example": {"auth": "` + coded(":token") + `"}}}`, "h.example/a", "/token//"},
		"no padding":             {v1.DockerConfigJsonKey, `{"auths": {"h.example": {"auth": "` + strings.TrimRight(coded("u:pw"), "=") + `"}}}`, "h.example/a", "u/pw//"},
		"what else a docker has in its file": {
			v1.DockerConfigJsonKey, `{"features": {"buildkit": true}, "HttpHeaders": {"a": 1}, "auths": {"h.example": {"username": "u"}}}`, "h.example/a", "u///",
		},
		"empty": {v1.DockerConfigJsonKey, `{}`, "h.example/a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			auths, err := secretAuths(&v1.Secret{Data: map[string][]byte{c.key: []byte(c.text)}}, c.image)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range auths {
				got = append(got, strings.Join([]string{a.Username, a.Password, a.IdentityToken, a.RegistryToken}, "/"))
				if a.ServerAddress != "" || a.Auth != "" {
					t.Errorf("a server or an auth goes along: %v", a)
				}
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestMalformedPullSecrets: the error does not contain the secret.
func TestMalformedPullSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"5ecret", `{"auths": {"h.example": "5ecret"}}`, `{"auths": {"h.example": {"auth": "5ecret!"}}}`,
		`{"auths": {"h.example": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("5ecret")) + `"}}}`,
	} {
		_, err := secretAuths(&v1.Secret{Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(text)}}, "h.example/a")
		if err == nil || !strings.HasPrefix(err.Error(), ".dockerconfigjson is no docker configuration") || strings.Contains(err.Error(), "5ecret") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestMissingPullSecret: the image is pulled without the secret, and a failure names the secret.
func TestMissingPullSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, "  imagePullSecrets: [{name: gone}]\n  containers: [{name: a, image: \"h.example/a:1\"}]")
	auths, missing, err := f.credentials(t.Context(), p, "h.example/a:1", set)
	if len(auths) > 0 || err != nil || missing == nil || missing.Error() != "secret default/gone not found" {
		t.Errorf("got %v, %v, %v", auths, missing, err)
	}
}
