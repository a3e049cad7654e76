// Package progress shows how far pulls, and copies of images, are: on a terminal in place, elsewhere
// as few plain lines.
package progress

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/live"
	"github.com/crishim/crishim/output"
)

// How often a terminal is drawn again, and a line is written elsewhere.
const (
	drawPeriod = 200 * time.Millisecond
	linePeriod = 30 * time.Second
	// storePeriod is how often a runtime is asked for the size of its images.
	storePeriod = 2 * time.Second
)

// Options say where progress goes.
type Options struct {
	Out io.Writer
	// Terminal allows to draw on it, Width is its width; 0 is unknown.
	Terminal bool
	Width    int
}

// Display shows pulls until Close.
type Display struct {
	o    Options
	stop chan struct{}
	done sync.WaitGroup // what Start and Stored have started

	mu     sync.Mutex // guards what follows
	pulls  []*Pull
	stored int64         // bytes more than in the beginning
	drawn  *live.Display // what is on the terminal
	watch  sync.Once
}

// Pull is one pull that is shown.
type Pull struct {
	d     *Display
	start time.Time
	pull  pull
}

// Start shows what will be pulled.
func Start(o Options) *Display {
	d := &Display{o: o, stop: make(chan struct{})}
	period := linePeriod
	if o.Terminal {
		period = drawPeriod
	}
	d.done.Go(func() { d.every(period, func() { d.show(time.Now()) }) })
	return d
}

// Add shows what is done to an image, such as "pulling", until its Close.
func (d *Display) Add(doing, image string) *Pull {
	p := &Pull{d: d, start: time.Now(), pull: pull{doing: doing, image: output.Sanitize(image), layers: map[string]*layer{}}}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pulls = append(d.pulls, p)
	return p
}

// Report takes a message about the pull.
func (p *Pull) Report(m client.PullProgress) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.pull.add(m) && !d.o.Terminal {
		there := ""
		if m.Status == statusPresent {
			there = " is there already"
		}
		fmt.Fprintf(d.o.Out, "%s: layer %s%s: %s\n", p.pull.image, output.Sanitize(m.Layer), there, p.pull.finished())
	}
}

// Close ends the pull.
func (p *Pull) Close() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.d.pulls = slices.DeleteFunc(p.d.pulls, func(other *Pull) bool { return other == p })
}

// Stored shows by how much the images have grown, of which used tells the
// size, for runtimes that tell nothing of a pull. Only the first call counts.
func (d *Display) Stored(used func(context.Context) (int64, error)) {
	d.watch.Do(func() { d.storedEvery(storePeriod, used) })
}

func (d *Display) storedEvery(period time.Duration, used func(context.Context) (int64, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	d.done.Go(func() {
		defer cancel()
		<-d.stop
	})
	d.done.Go(func() {
		before, err := used(ctx)
		if err != nil {
			return
		}
		d.every(period, func() {
			if now, err := used(ctx); err == nil {
				d.mu.Lock()
				d.stored = now - before
				d.mu.Unlock()
			}
		})
	})
}

// Around gives a writer for what goes to the same terminal as the display.
func (d *Display) Around(w io.Writer) io.Writer { return around{d, w} }

type around struct {
	d *Display
	w io.Writer
}

func (a around) Write(b []byte) (int, error) {
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	a.d.draw(nil)
	return a.w.Write(b)
}

// Close takes the display off the terminal. Nothing is written after it.
func (d *Display) Close() {
	close(d.stop)
	d.done.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draw(nil)
}

func (d *Display) every(period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-tick.C:
			do()
		}
	}
}

// show tells how things are at a time.
func (d *Display) show(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lines []string
	for _, p := range d.pulls {
		if d.o.Terminal {
			lines = append(lines, p.pull.page(max(1, layersShown/len(d.pulls)))...)
		}
		lines = append(lines, p.pull.summary(now.Sub(p.start), d.stored))
	}
	if d.o.Terminal {
		d.draw(lines)
		return
	}
	for _, line := range lines {
		fmt.Fprintln(d.o.Out, line)
	}
}

// draw replaces the lines on the terminal, and has taken them away where there are none. Writing to it may fail like
// any message on stderr; the pull is what counts.
func (d *Display) draw(lines []string) {
	switch {
	case len(lines) > 0:
		if d.drawn == nil {
			d.drawn = live.Start(d.o.Out, d.o.Width)
		}
		_ = d.drawn.Show(strings.Join(lines, "\n") + "\n")
	case d.drawn != nil:
		d.drawn.Erase()
		d.drawn = nil
	}
}

// layersShown is how many layers are on the terminal at once: less than the
// rows of any.
const layersShown = 8

// pull is what the messages about a pull have said so far. Without any it
// knows the image only.
type pull struct {
	doing  string
	image  string
	layers map[string]*layer
	order  []*layer
}

type layer struct {
	id, status     string
	done           bool
	current, total int64 // of what the status says
	loaded, size   int64 // bytes of the download
}

// The engine's words for what is done to a layer. Those for a new one come for
// all of them before anything is done.
const (
	statusPulling     = "Pulling from "
	statusDownloading = "Downloading"
	statusDownloaded  = "Download complete"
	statusDone        = "Pull complete"
	statusPresent     = "Already exists"
)

// Ours for what is done to a layer that is copied.
const (
	StatusCopying = "Copying"
	StatusCopied  = "Copied"
	StatusPresent = statusPresent
)

// add takes a message and reports whether it has finished a layer.
func (p *pull) add(m client.PullProgress) bool {
	if m.Layer == "" || strings.HasPrefix(m.Status, statusPulling) {
		return false // about the image; the second has its tag for a layer
	}
	l := p.layers[m.Layer]
	if l == nil {
		l = &layer{id: output.Sanitize(m.Layer)}
		p.layers[m.Layer] = l
		p.order = append(p.order, l)
	}
	was := l.done
	l.status, l.current, l.total = output.Sanitize(m.Status), m.Current, m.Total
	switch m.Status {
	case statusDownloading, StatusCopying:
		l.loaded, l.size = m.Current, max(m.Total, m.Current)
	case statusDownloaded:
		l.loaded = l.size
	case statusDone, StatusCopied, statusPresent:
		l.done, l.loaded = true, l.size
	}
	return l.done && !was
}

// finished counts the layers.
func (p *pull) finished() string {
	done := 0
	for _, l := range p.order {
		if l.done {
			done++
		}
	}
	return fmt.Sprintf("%d of %d layers done", done, len(p.order))
}

// summary returns the pull in a line. stored is how much the images have grown.
func (p *pull) summary(elapsed time.Duration, stored int64) string {
	parts := []string{p.doing + " " + p.image + ": " + elapsed.Truncate(time.Second).String()}
	if len(p.order) > 0 {
		parts = append(parts, p.finished())
	}
	var loaded, size int64
	for _, l := range p.order {
		loaded, size = loaded+l.loaded, size+l.size
	}
	if size > 0 {
		parts = append(parts, bytesOf(loaded, size))
	}
	if stored > 0 {
		parts = append(parts, "the images have grown by "+bytesOf(stored, 0))
	}
	return strings.Join(parts, ", ")
}

// page returns the layers at work, as many as there is room for.
func (p *pull) page(rows int) []string {
	var lines []string
	for _, l := range p.order {
		if l.working() && len(lines) < rows {
			lines = append(lines, l.line())
		}
	}
	return lines
}

// working leaves out the layers that wait for their turn.
func (l *layer) working() bool { return !l.done && (l.total > 0 || l.current > 0) }

func (l *layer) line() string {
	return fmt.Sprintf("%-12s  %-12s  %s", l.id, l.status, bytesOf(l.current, l.total))
}

func bytesOf(current, total int64) string {
	human := func(n int64) string { return units.HumanSizeWithPrecision(float64(n), 3) }
	if total <= 0 {
		return human(current)
	}
	return human(current) + " of " + human(total)
}
