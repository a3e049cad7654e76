package client_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestPullErrors checks that the message does not repeat the image's name, keeps the reason, and that IsRefused
// recognizes each runtime's wording.
func TestPullErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code    codes.Code
		text    string
		want    string
		refused bool
	}{
		"the shim":          {codes.Unauthenticated, "pull image r.example/a:1: Error response from daemon: unauthorized", "unauthorized", true},
		"the shim, no such": {codes.NotFound, "pull image a:1: manifest unknown", "manifest unknown", false},
		"the shim, no registry": {
			codes.Unavailable, "RegistryUnavailable: pull image r.example/a:1: dial tcp: refused",
			"the registry cannot be reached: dial tcp: refused", false,
		},
		"containerd": {
			codes.Unknown, `failed to pull and unpack image "r.example/a:1": failed to resolve reference "r.example/a:1": pulling from host r.example failed with status code [manifests 1]: 401 Unauthorized`,
			"pulling from host r.example failed with status code [manifests 1]: 401 Unauthorized", true,
		},
		"containerd, no registry": {
			codes.Unknown, `failed to pull and unpack image "r.example/a:1": failed to resolve reference "r.example/a:1": failed to do request: Head "https://r.example/v2/a/manifests/1": dial tcp: refused`,
			`the registry cannot be reached: Head "https://r.example/v2/a/manifests/1": dial tcp: refused`, false,
		},
		"the shim, limited": {
			codes.ResourceExhausted, "pull image r.example/a:1: toomanyrequests: You have reached your unauthenticated pull rate limit.",
			"the registry limits how much may be pulled: toomanyrequests: You have reached your unauthenticated pull rate limit.", false,
		},
		"the shim, registry in trouble": {
			codes.Unavailable, "RegistryUnavailable: pull image r.example/a:1: Error response from daemon: received unexpected HTTP status: 503 Service Unavailable",
			"the registry is in trouble: received unexpected HTTP status: 503 Service Unavailable", false,
		},
		"the shim, html": {
			codes.Unavailable, "RegistryUnavailable: pull image r.example/a:1: error parsing HTTP 503 response body: invalid character '<'",
			"the registry is in trouble: error parsing HTTP 503 response body: invalid character '<'", false,
		},
		"containerd, limited": {
			codes.Unknown, `failed to pull and unpack image "r.example/a:429": failed to resolve reference "r.example/a:429": unexpected status from HEAD request to https://r.example/v2/a/manifests/429: 429 Too Many Requests`,
			"the registry limits how much may be pulled: unexpected status from HEAD request to https://r.example/v2/a/manifests/429: 429 Too Many Requests", false,
		},
		"containerd, in trouble": {
			codes.Unknown, `failed to pull and unpack image "r.example/a:1": failed to resolve reference "r.example/a:1": pulling from host r.example failed with status code [manifests 1]: 503 Service Unavailable`,
			"the registry is in trouble: pulling from host r.example failed with status code [manifests 1]: 503 Service Unavailable", false,
		},
		"a tag like a status":  {codes.NotFound, "pull image r.example/a:429: manifest for r.example/a:503 not found", "manifest for r.example/a:503 not found", false},
		"nothing but the name": {codes.Unknown, "pull image a: ", "pull image a:", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stubcri.Start(t, stubcri.Options{})
			s.Fail("PullImage", status.Error(tt.code, tt.text))
			c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
			_, err := c.Image.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "x"}})
			if err == nil || err.Error() != tt.want || client.IsRefused(err) != tt.refused {
				t.Errorf("got %v, refused %t", err, client.IsRefused(err))
			}
		})
	}
}
