package test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakTimeout is how long a goroutine may take to end. Libraries close connections
// in the background, and one that finds a connection closed by its peer may wait
// for a second before it gives up.
const leakTimeout = 45 * time.Second

// MainWithLeakCheck is for TestMain: it runs the tests and fails when goroutines stay.
func MainWithLeakCheck(m *testing.M, options ...goleak.Option) {
	status := m.Run()
	if status == 0 {
		if err := findLeaks(options); err != nil {
			fmt.Fprintf(os.Stderr, "the tests passed, and left goroutines: %v\n", err)
			status = 1
		}
	}
	os.Exit(status)
}

func findLeaks(options []goleak.Option) (err error) {
	for end := time.Now().Add(leakTimeout); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
