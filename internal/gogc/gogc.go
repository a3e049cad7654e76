// Package gogc sets GOGC at the start of the program. The tables of its libraries alone exceed the 4 MiB heap of the
// default first collection. Go initializes packages in the order of their paths, each after its imports. This package
// imports hardly anything, so it is initialized before most libraries.
package gogc

import (
	"os"
	"runtime/debug"
)

// Values of GOGC. Most commands exit before their first collection at 16 MiB. With the default GOGC, collections cost
// about 10 % of a 20 ms run, and each piece of a stream is garbage. Only serve, sync and copies of images run long.
const (
	command = 400
	Serve   = 100
)

func init() { Set(command) } //nolint:gochecknoinits // main runs after the libraries' initialization

// Set sets GOGC, unless GOGC or GOMEMLIMIT is set.
func Set(percent int) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(percent)
	}
}
