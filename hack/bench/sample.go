package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// unit is what a row's numbers are in.
type unit string

const (
	milliseconds   unit = "ms"
	megabytePerSec unit = "MB/s"
	mebibytes      unit = "MiB"
	megabytes      unit = "MB"
	perSecond      unit = "/s"
	calls          unit = "calls"
)

// figures are the quartiles of several runs.
type figures struct {
	N      int     `json:"n"`
	Low    float64 `json:"low"`
	Median float64 `json:"median"`
	Top    float64 `json:"top"`
}

func summarize(values []float64) figures {
	if len(values) == 0 {
		return figures{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	at := func(part float64) float64 { return v[int(part*float64(len(v)-1)+0.5)] }
	return figures{N: len(v), Low: at(0.25), Median: at(0.5), Top: at(0.75)}
}

// one is the figure of a single measurement.
func one(value float64) figures { return summarize([]float64{value}) }

// row is one line of the result.
type row struct {
	What  string  `json:"what"`
	Unit  unit    `json:"unit"`
	Ours  figures `json:"crishim"`
	Peer  figures `json:"peer"`
	Ratio figures `json:"ratio"`
	// PeerName says what the peer is; Quoted that its figure is not from here.
	PeerName string `json:"peerName,omitempty"`
	Quoted   bool   `json:"quoted,omitempty"`
	Target   target `json:"target"`
}

// target is what a row should keep to. 0 is no limit.
type target struct {
	MaxRatio float64 `json:"maxRatio,omitempty"`
	MinRatio float64 `json:"minRatio,omitempty"`
	Max      float64 `json:"max,omitempty"`
}

func (r row) targetText() string {
	switch t := r.Target; {
	case t.MaxRatio != 0:
		return fmt.Sprintf("<=%.3gx", t.MaxRatio)
	case t.MinRatio != 0:
		return fmt.Sprintf(">=%.3gx", t.MinRatio)
	case t.Max != 0:
		return fmt.Sprintf("<%.4g %s", t.Max, r.Unit)
	}
	return ""
}

// verdict is "yes" or "no" where the row has a target and what it takes to
// tell. A figure from another machine decides nothing.
func (r row) verdict() string {
	t, ratio := r.Target, r.Ratio
	var ok bool
	switch {
	case t.Max != 0:
		ok = r.Ours.Median < t.Max
	case r.Quoted || ratio.N == 0 || t == target{}:
		return ""
	case t.MaxRatio != 0:
		ok = ratio.Median <= t.MaxRatio
	default:
		ok = ratio.Median >= t.MinRatio
	}
	if ok {
		return "yes"
	}
	return "no"
}

// pair describes a row that pairs ours with a peer.
type pair struct {
	what       string
	target     target
	peerName   string
	runs       int
	ours, peer func() error
	// size is the megabytes that each of them moves; the row is then MB/s.
	size float64
}

// measure runs ours and peer in turns and keeps how long each took; one run of
// each comes before and is not counted. A nil peer is left out.
func (b *bench) measure(p pair) error {
	var mine, theirs, ratios []float64
	for i := range p.runs + 1 {
		ours, err := timed(p.ours)
		if err != nil {
			return fmt.Errorf("%s: %w", p.what, err)
		}
		peer, err := timed(p.peer)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", p.what, p.peerName, err)
		}
		if p.size != 0 {
			ours, peer = p.size*1000/ours, p.size*1000/peer
		}
		if i == 0 {
			continue
		}
		mine = append(mine, ours)
		if p.peer != nil {
			theirs, ratios = append(theirs, peer), append(ratios, ours/peer)
		}
	}
	r := row{What: p.what, Unit: milliseconds, Ours: summarize(mine), Peer: summarize(theirs), Ratio: summarize(ratios), PeerName: p.peerName, Target: p.target}
	if p.size != 0 {
		r.Unit = megabytePerSec
	}
	b.add(r)
	return nil
}

// timed returns the milliseconds that do took; a nil do takes no time.
func timed(do func() error) (float64, error) {
	if do == nil {
		return 1, nil
	}
	start := time.Now()
	err := do()
	return since(start), err
}

func since(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1000 }

// quote adds a figure from elsewhere to a row that is measured.
func (r row) quote(name string, value float64) row {
	r.Peer, r.PeerName, r.Quoted = figures{Median: value}, name, true
	return r
}

// add keeps a row and shows how far the run is.
func (b *bench) add(r row) {
	b.results.Rows = append(b.results.Rows, r)
	fmt.Fprintf(os.Stderr, "%-46s %.4g %s\n", r.What, r.Ours.Median, r.Unit)
}
