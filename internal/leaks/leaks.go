// Package leaks ends the tests of a package with a look at what still runs.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a goroutine may take to end. Libraries close connections
// in the background, and one that finds a connection closed by its peer may wait
// for a second before it gives up.
const patience = 45 * time.Second

// Main is for TestMain: it runs the tests and fails when goroutines stay.
func Main(m *testing.M, options ...goleak.Option) {
	status := m.Run()
	if status == 0 {
		if err := find(options); err != nil {
			fmt.Fprintf(os.Stderr, "the tests passed, and left goroutines: %v\n", err)
			status = 1
		}
	}
	os.Exit(status)
}

func find(options []goleak.Option) (err error) {
	for end := time.Now().Add(patience); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
