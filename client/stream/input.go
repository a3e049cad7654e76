package stream

import (
	"bytes"
	"fmt"

	"github.com/moby/term"
)

// parseDetachKeys parses docker's notation: comma-separated keys, each a single character or ctrl- and one of a-z @ [ \
// ] ^ _. An empty string means no detach keys.
func parseDetachKeys(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	keys, err := term.ToBytes(s)
	if err != nil {
		return nil, fmt.Errorf("invalid detach keys %q: a key must be a character, or ctrl- and one of a-z @ [ \\ ] ^ _", s)
	}
	return keys, nil
}

// detachScanner finds the detach keys in typed input. It holds back keys that may begin the sequence until the next key
// decides.
type detachScanner struct {
	keys []byte
	held int // number of keys matched so far
}

// scan returns the input to send and whether the sequence is complete. Input after a complete sequence is dropped.
func (d *detachScanner) scan(typed []byte) (send []byte, detached bool) {
	if len(d.keys) == 0 {
		return typed, false
	}
	for _, b := range typed {
		if b == d.keys[d.held] {
			d.held++
			if d.held == len(d.keys) {
				return send, true
			}
			continue
		}
		send = append(send, d.mismatch(b)...)
	}
	return send, false
}

// mismatch handles a key b that does not continue the sequence. Of the held keys and b, it holds the longest suffix
// that may begin the sequence, so that "ctrl-p ctrl-p ctrl-q" detaches, and returns the keys before that suffix.
func (d *detachScanner) mismatch(b byte) []byte {
	typed := append(bytes.Clone(d.keys[:d.held]), b)
	for n := len(typed) - 1; n > 0; n-- {
		if bytes.HasPrefix(d.keys, typed[len(typed)-n:]) {
			d.held = n
			return typed[:len(typed)-n]
		}
	}
	d.held = 0
	return typed
}
