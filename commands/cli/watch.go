package cli

import (
	"bytes"
	"context"
	"io"
	"time"
)

// screen shows one page after another: on a terminal each in the place of the
// one before, in a pipe one behind the other and without any escape code.
type screen struct {
	out      io.Writer
	terminal bool
	shown    bool
}

// Escape codes of every terminal in use: home, erase to the end of the line,
// erase to the end of the screen.
const (
	cursorHome  = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
	eraseScreen = "\x1b[2J"
)

// show writes one page.
func (s *screen) show(page []byte) error {
	if !s.terminal {
		_, err := s.out.Write(page)
		return err
	}
	var b bytes.Buffer
	if !s.shown {
		b.WriteString(eraseScreen)
	}
	s.shown = true
	b.WriteString(cursorHome)
	for line := range bytes.Lines(page) {
		b.Write(bytes.TrimSuffix(line, []byte("\n")))
		b.WriteString(eraseLine + "\n")
	}
	b.WriteString(eraseBelow)
	_, err := s.out.Write(b.Bytes())
	return err
}

// Pause waits for d or until ctx ends, and reports which by its error.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Refresh calls page once or, if asked to watch, again and again until the
// user interrupts, which is how a watch ends well.
func Refresh(ctx context.Context, watch bool, interval time.Duration, page func(context.Context) error) error {
	for {
		err := page(ctx)
		if !watch {
			return err
		}
		if err == nil {
			err = Pause(ctx, interval)
		}
		if ctx.Err() != nil {
			return ErrFollowed
		}
		if err != nil {
			return err
		}
	}
}
