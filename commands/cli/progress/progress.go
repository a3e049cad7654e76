// Package progress shows the progress of pulls and of copies of images: redrawn in place on a terminal, elsewhere in a
// few plain lines.
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

// drawPeriod is the interval at which a terminal is redrawn. Other outputs get a line every linePeriod.
const (
	drawPeriod = 200 * time.Millisecond
	linePeriod = 30 * time.Second
	// storePeriod is the interval at which a runtime is asked for the size of its images.
	storePeriod = 2 * time.Second
)

// Options describe the output of a Display.
type Options struct {
	Out io.Writer
	// Terminal reports whether Out is a terminal to draw on. Width is its width; 0 means unknown.
	Terminal bool
	Width    int
}

// Display shows pulls until Close.
type Display struct {
	o    Options
	stop chan struct{}
	done sync.WaitGroup // the goroutines of Start and Stored

	mu     sync.Mutex // guards the fields below
	pulls  []*Pull
	stored int64         // growth of the images in bytes since the start
	drawn  *live.Display // the lines on the terminal
	watch  sync.Once
}

// Pull is a pull in a Display.
type Pull struct {
	d     *Display
	start time.Time
	pull  pull
}

// Start starts a display without pulls.
func Start(o Options) *Display {
	d := &Display{o: o, stop: make(chan struct{})}
	period := linePeriod
	if o.Terminal {
		period = drawPeriod
	}
	d.done.Go(func() { d.every(period, func() { d.show(time.Now()) }) })
	return d
}

// Add shows an operation on an image, such as "pulling", until Close of the result.
func (d *Display) Add(doing, image string) *Pull {
	p := &Pull{d: d, start: time.Now(), pull: pull{doing: doing, image: output.Sanitize(image), layers: map[string]*layer{}}}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pulls = append(d.pulls, p)
	return p
}

// Report applies a message about the pull. If the output is not a terminal, Report writes a line for each finished layer.
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

// Close removes the pull from the display.
func (p *Pull) Close() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.d.pulls = slices.DeleteFunc(p.d.pulls, func(other *Pull) bool { return other == p })
}

// Stored shows by how much the images have grown, for runtimes without messages about a pull. used returns the total
// size of the images. Only the first call counts.
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

// Around returns a writer for other output to the same terminal. It erases the display before each write.
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

// Close stops the periodic output and erases the display. After Close, nothing is drawn on the terminal.
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

// show draws the state of all pulls on the terminal, or writes a line per pull to other outputs. now is the current time.
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

// draw replaces the lines on the terminal, or erases them if lines is empty. It ignores write errors, because a lost
// message on stderr must not end the pull.
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

// layersShown is the number of layers on the terminal at once, so that they fit on any terminal. With more pulls than
// this, each pull still has one layer.
const layersShown = 8

// pull is the state of a pull according to the messages so far. Before the first message it has only the operation and
// the image.
type pull struct {
	doing  string
	image  string
	layers map[string]*layer
	order  []*layer
}

type layer struct {
	id, status     string
	done           bool
	current, total int64 // bytes of the layer's current status
	loaded, size   int64 // bytes of the download
}

// Statuses in Docker's messages about a pull. Docker sends a message for every new layer before it downloads the first
// layer, so the number of layers is known early.
const (
	statusPulling     = "Pulling from "
	statusDownloading = "Downloading"
	statusDownloaded  = "Download complete"
	statusDone        = "Pull complete"
	statusPresent     = "Already exists"
)

// Statuses of a layer that crishim copies itself.
const (
	StatusCopying = "Copying"
	StatusCopied  = "Copied"
)

// add applies a message and reports whether the message finishes a layer.
func (p *pull) add(m client.PullProgress) bool {
	if m.Layer == "" || strings.HasPrefix(m.Status, statusPulling) {
		return false // a message about the image, sometimes with its tag in place of a layer
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

// finished returns the number of finished layers in words.
func (p *pull) finished() string {
	done := 0
	for _, l := range p.order {
		if l.done {
			done++
		}
	}
	return fmt.Sprintf("%d of %d layers done", done, len(p.order))
}

// summary returns a line about the whole pull. stored is the number of bytes by which the images have grown.
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

// page returns a line for each layer in progress, at most rows.
func (p *pull) page(rows int) []string {
	var lines []string
	for _, l := range p.order {
		if l.working() && len(lines) < rows {
			lines = append(lines, l.line())
		}
	}
	return lines
}

// working reports whether a layer is in progress. Waiting layers are not.
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
