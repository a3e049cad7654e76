package logs

import (
	"bytes"
	"hash/maphash"
	"maps"
	"time"
)

// overlap is the part of the engine's log that is read again, because the two streams may be out of order.
const overlap = 2 * time.Second

// position is the time of the last line of a log, and the lines near it, which the engine will repeat.
type position struct {
	last   time.Time // greatest time of all records
	newest time.Time // time of the most recently written record; more than overlap before last if the clock was set back
	skip   bool      // skip records until the first one in repeat, because the engine also repeats older records
	seed   maphash.Seed
	recent []mark
	counts map[uint64]int // number of equal lines in recent
	repeat map[uint64]int // copy of counts when the engine's log was requested, minus the lines that the engine has repeated since
}

type mark struct {
	at  time.Time
	key uint64
}

func newPosition() *position {
	return &position{seed: maphash.MakeSeed(), counts: map[uint64]int{}}
}

func (p *position) since() time.Time {
	switch {
	case p.last.IsZero():
		return p.last
	case p.putBack():
		return p.newest.Add(-overlap)
	}
	return p.last.Add(-overlap)
}

// putBack reports whether the clock was set back while the log was written: the most recently written record is older
// than the greatest time in the log by more than overlap.
func (p *position) putBack() bool { return p.newest.Before(p.last.Add(-overlap)) }

// ahead reports whether the clock was set back since the last record, so that new records may have any time.
func (p *position) ahead(now time.Time) bool { return p.last.After(now.Add(overlap)) }

func (p *position) rewind(everything bool) {
	p.skip = (everything || p.putBack()) && len(p.counts) > 0
	p.repeat = maps.Clone(p.counts)
}

func (p *position) fresh(line []byte) bool {
	key := maphash.Bytes(p.seed, line)
	if p.repeat[key] == 0 {
		return !p.skip
	}
	p.skip = false
	p.repeat[key]--
	return false
}

// wrote adds a line and occasionally drops lines that the engine will not repeat.
func (p *position) wrote(at time.Time, line []byte) {
	key := maphash.Bytes(p.seed, line)
	p.recent = append(p.recent, mark{at: at, key: key})
	p.counts[key]++
	p.newest = at
	if at.After(p.last) {
		p.last = at
	}
	limit, n := p.since(), 0
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

func latest(lines [][]byte) []byte {
	const second = len("2026-01-02T15:04:05")
	var found []byte
	for _, line := range lines {
		if len(line) > second && bytes.Compare(line[:second], found) > 0 {
			found = line[:second]
		}
	}
	return found
}

func lineTime(line []byte) (time.Time, bool) {
	stamp, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || !(bytes.HasPrefix(rest, []byte("std"))) {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	return at, err == nil
}
