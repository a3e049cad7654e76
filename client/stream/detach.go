package stream

import (
	"bytes"
	"fmt"
	"strings"
)

// ParseDetachKeys reads docker's notation: keys separated by commas, each a
// single character or ctrl- and one of a-z @ [ \ ] ^ _. The empty string means
// no keys.
func ParseDetachKeys(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	var keys []byte
	for _, key := range strings.Split(s, ",") {
		b, err := detachKey(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, b)
	}
	return keys, nil
}

func detachKey(key string) (byte, error) {
	name, ctrl := strings.CutPrefix(strings.ToLower(key), "ctrl-")
	switch {
	case !ctrl && len(key) == 1:
		return key[0], nil
	case ctrl && len(name) == 1 && name[0] >= 'a' && name[0] <= 'z':
		return name[0] - 'a' + 1, nil
	case ctrl && len(name) == 1 && strings.Contains(`@[\]^_`, name):
		return name[0] & 0x1f, nil
	}
	return 0, fmt.Errorf("detach key %q: want a character, or ctrl- and one of a-z @ [ \\ ] ^ _", key)
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
