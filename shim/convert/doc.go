// Package convert translates values of the Docker Engine API into values of
// the CRI and back: states, times, mounts, security options, resources,
// images, users, signals.
//
// Everything here is pure: values in, values out, and an error where the input
// can be wrong. Nothing calls the engine, reads a file, or knows a clock. What
// only the engine or the host can tell is handed in by the caller.
package convert
