package logs

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"
)

const stamp = "2026-01-02T03:04:05.000000006Z"

// frame returns a record in the engine's format for a container without a terminal.
func frame(stream byte, payload string) string {
	header := make([]byte, 8)
	header[0] = stream
	binary.BigEndian.PutUint32(header[4:], uint32(len(payload)))
	return string(header) + payload
}

func ofDriver(driver string, tty bool) container.InspectResponse {
	host := &container.HostConfig{LogConfig: container.LogConfig{Type: driver}}
	return container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{HostConfig: host}, Config: &container.Config{Tty: tty}}
}

func lines(t *testing.T, src source) (got []string, err error) {
	t.Helper()
	for {
		r, err := src.next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, string(r.line()))
	}
}

func TestFramedRecords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", chunkSize)
	in := frame(1, stamp+" out\n") + frame(2, stamp+" err\n") + frame(1, stamp+" "+long) + frame(1, stamp+" end\n") + frame(1, stamp+" \n")
	want := []string{
		stamp + " stdout F out\n", stamp + " stderr F err\n",
		stamp + " stdout P " + long + "\n", stamp + " stdout F end\n", stamp + " stdout F \n",
	}
	got, err := lines(t, newSource(strings.NewReader(in), ofDriver("json-file", false)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestUnfinishedLines checks that an incomplete last line has the tag P, as in containerd. The driver "local" does not
// report whether a line was split.
func TestUnfinishedLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", chunkSize)
	short := frame(2, stamp+" a\n") + frame(1, stamp+" abcd")
	cut := frame(1, stamp+" "+long) + frame(2, stamp+" b\n") + frame(1, stamp+" end")
	wantShort := []string{stamp + " stderr F a\n", stamp + " stdout P abcd\n"}
	wantCut := []string{stamp + " stdout P " + long + "\n", stamp + " stderr F b\n", stamp + " stdout P end\n"}
	wantLocal := []string{wantCut[0], wantCut[1], stamp + " stdout F end\n"}
	for _, c := range []struct {
		driver, in string
		want       []string
	}{
		{"json-file", short, wantShort},
		{"json-file", cut, wantCut},
		{"journald", cut, wantCut},
		{"local", short, wantShort},
		{"local", cut, wantLocal},
		{"syslog", cut, wantLocal},
	} {
		got, err := lines(t, newSource(strings.NewReader(c.in), ofDriver(c.driver, false)))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.driver, err, diff)
		}
	}
}

func TestPlainRecords(t *testing.T) {
	t.Parallel()
	const later = "2026-01-02T03:04:06.000000000Z"
	long := strings.Repeat("x", chunkSize)
	for name, c := range map[string]struct {
		in, broken string
		want       []string
		driver     string
	}{
		"lines": {stamp + " one\r\n" + stamp + " \r\n", "", []string{stamp + " stdout F one\r\n", stamp + " stdout F \r\n"}, ""},
		"parts": {
			stamp + " " + long + stamp + " end\r\n" + stamp + " " + long + "\n", "",
			[]string{stamp + " stdout P " + long + "\n", stamp + " stdout F end\r\n", stamp + " stdout F " + long + "\n"},
			"",
		},
		"a last part of the driver local": {
			stamp + " " + long + stamp + " " + long + stamp + " end\r" + later + " 1\r\n" + later + " 2\r\n", "",
			[]string{stamp + " stdout P " + long + "\n", stamp + " stdout P " + long + "\n", stamp + " stdout F end\r\n", later + " stdout F 1\r\n", later + " stdout F 2\r\n"},
			"local",
		},
		"a last part at the end": {
			stamp + " " + long + stamp + " end\r", "",
			[]string{stamp + " stdout P " + long + "\n", stamp + " stdout F end\r\n"},
			"local",
		},
		"times in the text": {
			stamp + " it is " + later + " now\r\n" + later + " " + long + later + " it was " + stamp + " then\r\n", "",
			[]string{stamp + " stdout F it is " + later + " now\r\n", later + " stdout P " + long + "\n", later + " stdout F it was " + stamp + " then\r\n"},
			"",
		},
		"a line that never ended":   {stamp + " one\r\n" + later + " $ ", "", []string{stamp + " stdout F one\r\n", later + " stdout P $ \n"}, ""},
		"a stream that was cut off": {stamp + " one\r\n", later + " tw", []string{stamp + " stdout F one\r\n"}, ""},
	} {
		driver := c.driver
		if driver == "" {
			driver = "json-file"
		}
		var in io.Reader = strings.NewReader(c.in + c.broken)
		if c.broken != "" {
			in = io.MultiReader(in, iotest.ErrReader(io.ErrUnexpectedEOF))
		}
		got, err := lines(t, newSource(in, ofDriver(driver, true)))
		if (err != nil) != (c.broken != "") {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: lines (-want +got):\n%s", name, diff)
		}
	}
}

func TestBadRecords(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"no time":         frame(1, "text\n"),
		"not a time":      frame(1, "yesterday text\n"),
		"error of engine": frame(3, "something broke"),
		"absurd length":   "\x01\x00\x00\x00\xff\xff\xff\xff",
		"cut in a record": frame(1, stamp+" text\n")[:20],
		"cut in a header": "\x01\x00",
	} {
		if got, err := lines(t, newSource(strings.NewReader(in), ofDriver("json-file", false))); err == nil || len(got) > 0 {
			t.Errorf("%s: got %q, %v, want an error", name, got, err)
		}
	}
}

func FuzzSources(f *testing.F) {
	f.Add(frame(1, stamp+" out\n"), false)
	f.Add(stamp+" out\r\n", true)
	f.Fuzz(func(_ *testing.T, in string, tty bool) {
		src := newSource(strings.NewReader(in), ofDriver("local", tty))
		for {
			if _, err := src.next(); err != nil {
				return
			}
		}
	})
}
