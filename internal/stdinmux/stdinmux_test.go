package stdinmux

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestInputAndSignals(t *testing.T) {
	t.Parallel()
	var stream bytes.Buffer
	w := NewWriter(&stream)
	sent := strings.Repeat("0123456789", 10_000)
	if n, err := io.WriteString(w, sent); n != len(sent) || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	for _, err := range []error{w.Signal(syscall.SIGUSR1), w.Close(), w.Signal(syscall.SIGINT)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, raised, err := readAll(&stream)
	if got != sent || err != nil || !slices.Equal(raised, []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGHUP}) {
		t.Errorf("got %d bytes, %v, %v", len(got), raised, err)
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing": "", "a piece of a header": "\x00\x00", "a piece of a message": "\x00\x00\x00\x00\x05ab",
		"an unknown kind": "\x07\x00\x00\x00\x00", "too long": "\x00\xff\xff\xff\xff", "a long signal": "\x01\x00\x00\x00\x02ab",
	} {
		_, raised, err := readAll(strings.NewReader(text))
		if !slices.Equal(raised, []syscall.Signal{syscall.SIGHUP}) || (err == nil) != (name == "nothing") {
			t.Errorf("%s: got %v, %v", name, raised, err)
		}
	}
}

// readAll reads as the process at the other end does.
func readAll(from io.Reader) (got string, raised []syscall.Signal, err error) {
	stdin, pipe := io.Pipe()
	done := make(chan error)
	go func() {
		done <- Read(from, pipe, func(s syscall.Signal) { raised = append(raised, s) })
	}()
	text, err := io.ReadAll(stdin)
	if err != nil {
		return "", nil, err
	}
	return string(text), raised, <-done
}
