package test

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds what a test waits for; only a broken program takes so long.
const patience = 2 * time.Minute

// Until waits for something to become true that has no event.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Buffer may be read while it is written. The zero value is ready to use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is what has been written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

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
