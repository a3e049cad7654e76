package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/screen"
)

// messages returns the engine's messages about a pull of three layers.
func messages() []client.PullProgress {
	return []client.PullProgress{
		{Layer: "1", Status: "Pulling from library/app"},
		{Layer: "aaa", Status: "Pulling fs layer"},
		{Layer: "bbb", Status: "Pulling fs layer"},
		{Layer: "ccc", Status: "Already exists"},
		{Layer: "aaa", Status: "Downloading", Current: 1_000_000, Total: 2_000_000},
		{Layer: "bbb", Status: "Downloading", Current: 500_000, Total: 4_000_000},
		{Layer: "aaa", Status: "Download complete"},
		{Layer: "aaa", Status: "Extracting", Current: 1_500_000, Total: 2_000_000},
	}
}

// newPull returns a display with a pull. No goroutine draws it.
func newPull(image string, o Options) (*Display, *Pull) {
	d := &Display{o: o, stop: make(chan struct{})}
	return d, d.Add("pulling", image)
}

func TestPage(t *testing.T) {
	_, p := newPull("app", Options{Terminal: true})
	if got := p.pull.summary(3*time.Second, 0); got != "pulling app: 3s" || len(p.pull.page(layersShown)) > 0 {
		t.Errorf("in the beginning: %s", got)
	}
	for _, m := range messages() {
		p.pull.add(m)
	}
	want := []string{
		"aaa           Extracting    1.5MB of 2MB",
		"bbb           Downloading   500kB of 4MB",
		"pulling app: 1m2s, 1 of 3 layers done, 2.5MB of 6MB",
	}
	if diff := cmp.Diff(want, append(p.pull.page(layersShown), p.pull.summary(62*time.Second+time.Millisecond, 0))); diff != "" {
		t.Error(diff)
	}
}

func TestPageHasFewRows(t *testing.T) {
	var out test.Buffer
	d, _ := newPull("a", Options{Out: &out, Terminal: true})
	d.Add("pulling", "b")
	for _, p := range d.pulls {
		for _, id := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			p.pull.add(client.PullProgress{Layer: id, Status: statusDownloading, Current: 1, Total: 2})
		}
	}
	d.show(time.Now())
	until(t, &out, 80, func(seen string) bool { return strings.Count(seen, "\n")+1 == layersShown+2 })
	d.Close()
}

// until waits until ok accepts the text on a terminal of a width.
func until(t *testing.T, out *test.Buffer, width int, ok func(seen string) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(screen.Text(out.String(), width)); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got\n%s\nof %q", screen.Text(out.String(), width), out.String())
		}
	}
}

func TestPlainLines(t *testing.T) {
	var out bytes.Buffer
	d, p := newPull("app\x1b[2J", Options{Out: &out})
	for _, m := range messages() {
		p.Report(m)
	}
	d.show(p.start.Add(30 * time.Second))
	p.Report(client.PullProgress{Layer: "aaa", Status: statusDone})
	p.Report(client.PullProgress{Layer: "aaa", Status: statusDone})
	p.Report(client.PullProgress{Status: "Status: Downloaded newer image for app"})
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("an escape code in a pipe: %q", out.String())
	}
	got := strings.ReplaceAll(out.String(), p.pull.image, "app")
	want := "app: layer ccc is there already: 1 of 3 layers done\n" +
		"pulling app: 30s, 1 of 3 layers done, 2.5MB of 6MB\n" +
		"app: layer aaa: 2 of 3 layers done\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestStored: for a runtime that reports no progress, the growth of its images shows that the pull goes on.
func TestStored(t *testing.T) {
	sizes := []int64{100, 100, 5_000_100}
	asked := make(chan struct{}, 100)
	d, p := newPull("app", Options{Out: io.Discard})
	d.storedEvery(time.Millisecond, func(context.Context) (int64, error) {
		size := sizes[0]
		if len(sizes) > 1 {
			sizes = sizes[1:]
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		return size, nil
	})
	for range 4 {
		<-asked // the call before the last is recorded by then
	}
	close(d.stop)
	d.done.Wait()
	if got := p.pull.summary(time.Second, d.stored); got != "pulling app: 1s, the images have grown by 5MB" {
		t.Errorf("got %s", got)
	}
}

func TestStoredUnknown(t *testing.T) {
	d := Start(Options{Out: io.Discard})
	d.Stored(func(context.Context) (int64, error) { return 0, errors.New("unknown method ImageFsInfo") })
	d.Close()
	if d.stored != 0 {
		t.Errorf("got %d", d.stored)
	}
}

// TestStoredHangs: a runtime that hangs does not delay Close.
func TestStoredHangs(t *testing.T) {
	d := Start(Options{Out: io.Discard})
	d.Stored(func(ctx context.Context) (int64, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	d.Stored(func(context.Context) (int64, error) { t.Error("the second call counts"); return 0, nil })
	d.Close()
}

// TestDrawInPlace: each drawing erases the drawing before it. Close and other output erase all.
func TestDrawInPlace(t *testing.T) {
	var out test.Buffer
	d, p := newPull("application", Options{Out: &out, Terminal: true, Width: 12})
	shows := func(want string) {
		t.Helper()
		d.show(p.start)
		until(t, &out, 12, func(seen string) bool { return seen == want })
	}
	shows("pulling appl")
	p.Report(client.PullProgress{Layer: "aaa", Status: "Downloading", Current: 1, Total: 2})
	shows("aaa\npulling appl")
	fmt.Fprintln(d.Around(&out), "warning")
	if got := screen.Text(out.String(), 12); got != "warning" {
		t.Errorf("around a line: %q", got)
	}
	shows("warning\naaa\npulling appl")
	p.Close()
	d.Close()
	if got := screen.Text(out.String(), 12); got != "warning" {
		t.Errorf("at the end: %q", got)
	}
}

func TestCloseWithoutDrawing(t *testing.T) {
	var out bytes.Buffer
	d := Start(Options{Out: &out})
	d.Add("pulling", "app").Close()
	d.Close()
	if out.Len() > 0 {
		t.Errorf("got %q", out.String())
	}
}
