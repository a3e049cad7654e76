package test

import (
	"testing"
	"time"
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
