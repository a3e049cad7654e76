// Package probe runs liveness, readiness and startup probes: a command in the container,
// an HTTP request, a TCP connection or a gRPC health check. Run makes one attempt; Manager
// runs them at their periods for the containers that it is told about, counts to the
// thresholds, and answers what it last knew.
package probe
