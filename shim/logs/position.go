package logs

import (
	"bytes"
	"hash/maphash"
	"time"
)

// overlap is how far back the engine is asked again. Records of the two streams
// may stand in the engine's log in another order than their times.
const overlap = 2 * time.Second

// position is how far a log has been written: the last time, and the records
// near it, by which what the engine repeats is told from what is new.
type position struct {
	last   time.Time
	seed   maphash.Seed
	recent []mark
	counts map[uint64]int // of recent
	repeat map[uint64]int // of recent when the engine was asked, minus what it has repeated since
}

type mark struct {
	at  time.Time
	key uint64
}

func newPosition() *position {
	return &position{seed: maphash.MakeSeed(), counts: map[uint64]int{}}
}

// since is what the engine is asked for; the zero time means everything.
func (p *position) since() time.Time {
	if p.last.IsZero() {
		return p.last
	}
	return p.last.Add(-overlap)
}

// rewind prepares for the engine repeating what it has sent from since on.
func (p *position) rewind() {
	p.repeat = make(map[uint64]int, len(p.counts))
	for key, n := range p.counts {
		p.repeat[key] = n
	}
}

// fresh says whether a record that the engine sends has not been written yet.
func (p *position) fresh(line []byte) bool {
	key := maphash.Bytes(p.seed, line)
	if p.repeat[key] == 0 {
		return true
	}
	p.repeat[key]--
	return false
}

// wrote notes a line of the file.
func (p *position) wrote(at time.Time, line []byte) {
	key := maphash.Bytes(p.seed, line)
	p.recent = append(p.recent, mark{at: at, key: key})
	p.counts[key]++
	if at.After(p.last) {
		p.last = at
	}
	p.forget()
}

// forget drops what the engine will not repeat. It works on a prefix only, and
// now and then, so that it costs little.
func (p *position) forget() {
	limit := p.since()
	n := 0
	for n < len(p.recent) && p.recent[n].at.Before(limit) {
		n++
	}
	if n < 1024 && n < len(p.recent)/2 || n == 0 {
		return
	}
	for _, m := range p.recent[:n] {
		if p.counts[m.key]--; p.counts[m.key] == 0 {
			delete(p.counts, m.key)
		}
	}
	p.recent = append(p.recent[:0:0], p.recent[n:]...)
}

// lineTime reads the time of a line of a CRI log.
func lineTime(line []byte) (time.Time, bool) {
	stamp, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || !(bytes.HasPrefix(rest, []byte("std"))) {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	return at, err == nil
}
