// Package enginetest provides engines for the shim's tests: a real engine, if available, and an in-memory one.
package enginetest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/docker"
)

// Require returns a client of the environment's engine. Without an engine the test is skipped, or fails if DOCKER_HOST
// is set or CRISHIM_REQUIRE_ENGINE is 1.
func Require(t testing.TB) *docker.Client {
	t.Helper()
	if os.Getenv("CRISHIM_NO_ENGINE") == "1" {
		t.Skip("CRISHIM_NO_ENGINE is 1")
	}
	c, err := docker.New(docker.Options{})
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err = c.ServerVersion(ctx)
	}
	if host := os.Getenv("DOCKER_HOST"); err != nil && host != "" {
		t.Fatalf("no engine answers at DOCKER_HOST=%s: %v", host, err)
	}
	if err != nil {
		test.Missing(t, "this test needs a docker engine: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Containerd returns the endpoint of the environment's containerd. Without one the test is skipped or fails, as with
// Require.
func Containerd(t testing.TB) string {
	t.Helper()
	endpoint := os.Getenv("CRISHIM_TEST_CONTAINERD")
	if endpoint == "" {
		test.Missing(t, "CRISHIM_TEST_CONTAINERD names no containerd")
	}
	return endpoint
}
