// Package gogc sets GOGC before most libraries are initialized. By default the first collection starts at a heap of
// 4 MiB, and the tables of the libraries alone exceed that size. Go initializes packages in the order of their paths,
// each after its imports. This package imports hardly anything, so Go initializes it early.
package gogc

import (
	"os"
	"runtime/debug"
)

// Values of GOGC. With command, the first collection starts at a heap of 16 MiB, and most commands exit before it. With
// Go's default, collections cost about 10 % of a 20 ms run. A stream would cause more collections, because each piece
// of it becomes garbage. Serve is Go's default. It is for serve and sync, which run long, and for copies of images,
// which also produce much garbage. top may run all day and sets a lower value.
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
