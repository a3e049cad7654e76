package stream

import (
	"bytes"
	"fmt"

	"github.com/moby/term"
)

// parseDetachKeys reads docker's notation: keys separated by commas, each a
// single character or ctrl- and one of a-z @ [ \ ] ^ _. The empty string means
// no keys.
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

// detachScanner finds the detach keys in typed input. Keys that may be the
// beginning of the sequence are held back until the next one decides.
type detachScanner struct {
	keys []byte
	held int // how many of keys have been typed so far
}

// scan returns what is to be sent and whether the sequence is complete. What
// follows a complete sequence is dropped.
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

// mismatch gives up the longest part of the held keys that can no longer begin
// the sequence, so that "ctrl-p ctrl-p ctrl-q" still detaches.
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
