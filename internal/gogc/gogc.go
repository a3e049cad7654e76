// Package gogc sets GOGC before most libraries are initialized. By default the first collection starts at a heap of
// 4 MiB, and the tables of the libraries alone exceed that size. Go initializes packages in the order of their paths,
// each after its imports. This package imports hardly anything, so Go initializes it early.
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
