// Package gogc sets GOGC for a program of short commands when it starts. The tables of its libraries alone take the heap
// over the 4 MiB of the first collection. Go initializes packages in the order of their paths, each after those that it
// imports: this one, which imports next to nothing, comes before nearly all of the libraries.
package gogc

import (
	"os"
	"runtime/debug"
)

// Values of GOGC. Most commands end before the first collection at 16 MiB, which would be a
// tenth of the work of a process that lives for 20 ms; and each piece that a stream carries is
// garbage. Only serve, sync and copies of images live long.
const (
	Command = 400
	Serve   = 100
)

func init() { Set(Command) } //nolint:gochecknoinits // main comes after the libraries

// Set sets GOGC, unless GOGC or GOMEMLIMIT is set.
func Set(percent int) {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(percent)
	}
}
