package progress

import (
	"fmt"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// layersShown is how many layers are on the terminal at once: less than the
// rows of any.
const layersShown = 8

// pull is what the messages about a pull have said so far. Without any it
// knows the image only.
type pull struct {
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
	case statusDownloading:
		l.loaded, l.size = m.Current, max(m.Total, m.Current)
	case statusDownloaded:
		l.loaded = l.size
	case statusDone, statusPresent:
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

// summary is the pull in a line. stored is how much the images have grown.
func (p *pull) summary(elapsed time.Duration, stored int64) string {
	parts := []string{"pulling " + p.image + ": " + elapsed.Truncate(time.Second).String()}
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

// page are the layers at work, as many as there is room for.
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
