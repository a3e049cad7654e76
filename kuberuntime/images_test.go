package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func loginSecret(user string) *v1.Secret {
	text := fmt.Sprintf(`{"auths": {"r.example:5000": {"username": %q, "password": "p"}}}`, user)
	return &v1.Secret{Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(text)}}
}

// TestHostCredentialsThatCannotBeRead: a broken credential helper does not block other credentials. If all credentials
// fail, the error reports the helper once.
func TestHostCredentialsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		good string // the user with a valid login, "" if all logins fail
		want string
	}{
		"a secret is right": {"second", ""},
		"no secret is":      {"", "container a: ErrImagePull: pull image r.example:5000/app:1: unauthorized; the helper is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fixture
			var tried []string
			f = newFixture(t, func(o *Options) {
				o.Auth = func(context.Context, string) (*runtimeapi.AuthConfig, error) {
					return nil, errors.New("the helper is missing")
				}
				o.Pull = func(_ context.Context, image string, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
					tried = append(tried, auth.GetUsername())
					if auth.GetUsername() != tt.good {
						return "", errors.New("unauthorized")
					}
					return f.stub.AddImage(image), nil
				}
			})
			p, set := parse(t, `  containers: [{name: a, image: "r.example:5000/app:1"}]`)
			p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "first"}, {Name: "second"}}
			set.Secrets = map[string]*v1.Secret{p.Namespace + "/first": loginSecret("first"), p.Namespace + "/second": loginSecret("second")}
			_, err := f.Up(deadline(t), p, set, false)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want || strings.Join(tried, " ") != "first second" {
				t.Errorf("got %q after %v, want %q", got, tried, tt.want)
			}
		})
	}
}

// TestPullErrorName: the runtime's own error name is kept, also in a reworded message.
func TestPullErrorName(t *testing.T) {
	t.Parallel()
	unavailable := status.Error(codes.Unavailable, "RegistryUnavailable: nobody listens")
	for want, err := range map[string]error{
		"RegistryUnavailable": &reworded{unavailable},
		"ErrImagePull":        &reworded{status.Error(codes.NotFound, "no such tag")},
	} {
		if got := pullErrorName(err); got.Error() != want {
			t.Errorf("%v: got %v, want %s", err, got, want)
		}
	}
}

type reworded struct{ error }

func (*reworded) Error() string              { return "the registry cannot be reached" }
func (*reworded) GRPCStatus() *status.Status { return status.New(codes.Unavailable, "in other words") }
func (r *reworded) Unwrap() error            { return r.error }
